//! What is registered by name and found by a hash of the name that comes over the wire.

use crate::error::NameError;
use std::collections::BTreeMap;

/// The 64 bits by which a name is known on the wire: FNV-1a (RFC draft `draft-eastlake-fnv`), the same in every
/// process and version.
pub(crate) const fn hash(name: &str) -> u64 {
    let bytes = name.as_bytes();
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    let mut at = 0;
    while at < bytes.len() {
        hash = (hash ^ bytes[at] as u64).wrapping_mul(0x0100_0000_01b3);
        at += 1;
    }
    hash
}

/// Things with names.
pub(crate) struct Registry<T> {
    entries: BTreeMap<u64, (String, T)>,
}

impl<T> Default for Registry<T> {
    fn default() -> Self {
        Registry { entries: BTreeMap::new() }
    }
}

impl<T> Registry<T> {
    /// Registers `thing` under a name.
    pub(crate) fn register(&mut self, name: &str, thing: T) -> Result<(), NameError> {
        self.register_hashed(hash(name), name, thing)
    }

    fn register_hashed(&mut self, hash: u64, name: &str, thing: T) -> Result<(), NameError> {
        if let Some((other, _)) = self.entries.get(&hash) {
            return Err(if other == name {
                NameError::Twice(name.to_owned())
            } else {
                NameError::Collision { name: name.to_owned(), other: other.clone() }
            });
        }
        self.entries.insert(hash, (name.to_owned(), thing));
        Ok(())
    }

    /// What is registered under the name with this hash.
    pub(crate) fn get(&self, hash: u64) -> Option<&T> {
        self.entries.get(&hash).map(|(_, thing)| thing)
    }

    pub(crate) fn get_mut(&mut self, hash: u64) -> Option<&mut T> {
        self.entries.get_mut(&hash).map(|(_, thing)| thing)
    }

    /// Takes out what is registered under a name.
    pub(crate) fn remove(&mut self, name: &str) -> Option<T> {
        self.entries.remove(&hash(name)).map(|(_, thing)| thing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_fnv_1a() {
        // From the draft's table of test vectors.
        assert_eq!(hash(""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(hash("a"), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(hash("foobar"), 0x8594_4171_f739_67e8);
    }

    #[test]
    fn a_name_is_registered_once_and_a_collision_is_an_error() {
        let mut registry = Registry::default();
        registry.register("one", 1).unwrap();
        assert_eq!(registry.register("one", 2), Err(NameError::Twice("one".into())));
        assert_eq!(
            registry.register_hashed(hash("one"), "two", 2),
            Err(NameError::Collision { name: "two".into(), other: "one".into() })
        );
        assert_eq!((registry.get(hash("one")), registry.get(hash("two"))), (Some(&1), None));
        assert_eq!(registry.remove("one"), Some(1));
        registry.register("one", 3).unwrap();
    }
}
