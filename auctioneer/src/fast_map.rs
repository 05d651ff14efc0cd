//! Maps of the hot paths.

/// A map with a fast hash. The hash is seeded, because clients choose ids.
pub(crate) type FastMap<K, V> = std::collections::HashMap<K, V, foldhash::fast::RandomState>;
/// As [`FastMap`].
pub(crate) type FastSet<T> = std::collections::HashSet<T, foldhash::fast::RandomState>;
