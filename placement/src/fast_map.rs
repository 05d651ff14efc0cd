//! Maps of the hot paths. Their order is random: nothing that is decided or sent may follow from it.

/// A map with a fast hash. The hash is seeded, because others choose ids and names.
pub type FastMap<K, V> = std::collections::HashMap<K, V, foldhash::fast::RandomState>;
/// As [`FastMap`].
pub type FastSet<T> = std::collections::HashSet<T, foldhash::fast::RandomState>;
