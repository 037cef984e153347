//! How much a box holds; the program has the same limits.

/// Most ports of a box.
pub const PORTS_MAX: u32 = 64;
/// Most addresses that are known; beyond that the one that was used longest ago is forgotten.
pub const PLACES_MAX: u32 = 16_384;
/// Most networks of a box, each a bridge with its ports.
pub const NETWORKS_MAX: u32 = 16;
