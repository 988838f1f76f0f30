//! Readable GGUF architectures, one entry each: tensor names, how the converter stored tensors, and settings.

mod architecture;
mod decoders;
mod encoders;
mod gemma;
mod hybrids;
mod mixtures;
mod shared;

pub(super) use self::architecture::{Architecture, Fixed, Fused, Quirk, Rotary, Table};
pub(super) use self::shared::USUAL;

/// The architectures that files name, in groups; each group is sorted by name.
static GROUPS: [&[Architecture]; 5] = [
    decoders::DECODERS,
    encoders::ENCODERS,
    mixtures::MIXTURES,
    gemma::GEMMA,
    hybrids::HYBRIDS,
];

impl Architecture {
    /// Lists the architectures that files name, sorted by name.
    pub fn all() -> Vec<&'static Self> {
        let mut all: Vec<_> = GROUPS.into_iter().flatten().collect();
        all.sort_by_key(|known| known.name);
        all
    }

    /// Finds an architecture by the name that files have for it.
    pub fn named(name: &str) -> Option<&'static Self> {
        let mut all = GROUPS.into_iter().flatten();
        all.find(|known| known.name == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_sorted_and_no_name_is_given_twice() {
        for group in GROUPS {
            assert!(group.is_sorted_by_key(|known| known.name));
        }
        let all = Architecture::all();
        assert!(all.is_sorted_by(|a, b| a.name < b.name));
    }
}
