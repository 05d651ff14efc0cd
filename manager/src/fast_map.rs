//! Maps of the hot paths. Their order is random: nothing that is sent may follow from it.

/// A map with a fast hash. The hash is seeded, because others choose ids.
pub(crate) type FastMap<K, V> = std::collections::HashMap<K, V, foldhash::fast::RandomState>;
/// As [`FastMap`].
pub(crate) type FastSet<T> = std::collections::HashSet<T, foldhash::fast::RandomState>;
