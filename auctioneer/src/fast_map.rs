//! Maps of the hot paths.

/// Ids are made by clients, so the hash is seeded; it is several times as fast as the default one.
pub(crate) type FastMap<K, V> = std::collections::HashMap<K, V, foldhash::fast::RandomState>;
/// As [`FastMap`].
pub(crate) type FastSet<T> = std::collections::HashSet<T, foldhash::fast::RandomState>;
