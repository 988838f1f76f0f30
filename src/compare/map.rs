//! Mapping of A's layers to layers of B.

use std::collections::BTreeMap;
use std::str::FromStr;

use attnscope_spec::{ModelSpec, Stack};

/// Layer correspondence of two models of different depth: `0-5:0-10/2` pairs layers 0 to 5 of A with every second one of B.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LayerMap {
    /// Pairs of layers; `None` pairs every layer with itself.
    pairs: Option<BTreeMap<usize, usize>>,
}

impl LayerMap {
    /// Returns the layer of B paired with a layer of A.
    pub fn of(&self, _: Stack, layer_idx: usize) -> Option<usize> {
        match &self.pairs {
            None => Some(layer_idx),
            Some(pairs) => pairs.get(&layer_idx).copied(),
        }
    }

    /// Whether every layer is paired with itself.
    pub fn is_identity(&self) -> bool {
        self.pairs.is_none()
    }

    /// Returns the layers of A and of B without a counterpart.
    pub fn left_out(&self, a: &ModelSpec, b: &ModelSpec) -> [Vec<usize>; 2] {
        let Some(pairs) = &self.pairs else {
            return Default::default();
        };
        let depths = [a, b].map(|spec| spec.main_stack().n_layers());
        let is_paired_b = |idx: &usize| pairs.values().any(|of_b| of_b == idx);
        [
            (0..depths[0])
                .filter(|idx| !pairs.contains_key(idx))
                .collect(),
            (0..depths[1]).filter(|idx| !is_paired_b(idx)).collect(),
        ]
    }

    /// # Errors
    /// When a mapped layer does not exist in its model; the error names the first.
    pub fn check(&self, a: &ModelSpec, b: &ModelSpec) -> Result<(), String> {
        let depth = |spec: &ModelSpec| spec.main_stack().n_layers();
        for (of_a, of_b) in self.pairs.iter().flatten() {
            for (idx, n, side) in [(*of_a, depth(a), "A"), (*of_b, depth(b), "B")] {
                if idx >= n {
                    return Err(format!(
                        "--map: expected layers of {side} from 0 to {}, found {idx}",
                        n.max(1) - 1
                    ));
                }
            }
        }
        Ok(())
    }
}

impl FromStr for LayerMap {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("expected layers of A and of B, as in 0-5:0-10/2, found {text:?}");
        let mut pairs = BTreeMap::new();
        for part in text.split(',') {
            let (a, b) = part.split_once(':').ok_or_else(wrong)?;
            let (a, b) = (range(a).ok_or_else(wrong)?, range(b).ok_or_else(wrong)?);
            if a.len() != b.len() {
                return Err(format!(
                    "expected as many layers of A as of B in {part:?}, found {} and {}",
                    a.len(),
                    b.len()
                ));
            }
            pairs.extend(a.into_iter().zip(b));
        }
        let rises = pairs
            .values()
            .zip(pairs.values().skip(1))
            .all(|(a, b)| a < b);
        if !rises {
            return Err(format!(
                "expected layers of B that rise with those of A, found {text:?}"
            ));
        }
        Ok(Self { pairs: Some(pairs) })
    }
}

/// An upper limit of layer numbers, above any real model.
const MOST: usize = 100_000;

/// Parses `3`, `0-5`, or `0-10/2`.
fn range(text: &str) -> Option<Vec<usize>> {
    let number = |text: &str| text.trim().parse::<usize>().ok().filter(|n| *n < MOST);
    let (span, step) = match text.split_once('/') {
        None => (text, 1),
        Some((span, step)) => (span, number(step).filter(|step| *step > 0)?),
    };
    let (first, last) = match span.split_once('-') {
        None => (number(span)?, number(span)?),
        Some((first, last)) => (number(first)?, number(last)?),
    };
    (first <= last).then(|| (first..=last).step_by(step).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layer_maps_pair_layers_in_order() {
        let map: LayerMap = "0-5:0-10/2".parse().expect("a map");
        let of = |idx| map.of(Stack::Only, idx);
        assert_eq!(
            (of(0), of(3), of(5), of(6)),
            (Some(0), Some(6), Some(10), None)
        );
        let map: LayerMap = "0:1,2-3:4-5".parse().expect("a map");
        assert_eq!(map.of(Stack::Only, 3), Some(5));
        assert_eq!(LayerMap::default().of(Stack::Only, 7), Some(7));
        for bad in [
            "", "0-5", "0-5:0-3", "a:b", "0-1:3-2", "0,1:1,0", "0:0-4/0", "0:5,1:2",
        ] {
            assert!(bad.parse::<LayerMap>().is_err(), "{bad}");
        }
    }
}
