//! Maps for hot paths. Their order is random: nothing that is decided or sent may depend on it.

/// A map with a fast hash, which is seeded because others choose ids and names.
pub type FastMap<K, V> = std::collections::HashMap<K, V, foldhash::fast::RandomState>;
/// A set with the same hash as [`FastMap`].
pub type FastSet<T> = std::collections::HashSet<T, foldhash::fast::RandomState>;
