//! Maps of the hot paths. Their order is random: no decision may follow from it.

/// A map with a fast hash. The hash is seeded, because clients choose names.
pub(crate) type FastMap<K, V> = std::collections::HashMap<K, V, foldhash::fast::RandomState>;
