//! Which layers of a described model have attention, and which a feed-forward layer, where not all have both.

use super::Described;
use super::parts::every_nth;

/// Keys of `[tensors]` that belong to the feed-forward layer; other keys with a layer number belong to attention.
const OF_FEED_FORWARD: [&str; 18] = [
    "mlp_pre",
    "mlp_out",
    "mlp_post",
    "mlp_residual",
    "up",
    "gate",
    "gate_up",
    "hidden_norm",
    "down",
    "router",
    "choice_bias",
    "shared_up",
    "shared_gate",
    "shared_gate_up",
    "shared_down",
    "shared_weight",
    "experts",
    "mlp",
];

/// Layers, as a rule `STEP*i+FIRST` or as their numbers in ascending order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Layers {
    All,
    Every { step: usize, first: usize },
    These(Vec<usize>),
}

impl Layers {
    /// Reads a rule or numbers; `None` if the text is neither.
    pub fn read(text: &str) -> Option<Self> {
        if let Some((step, first)) = every_nth(text) {
            return Some(Self::Every { step, first });
        }
        let numbers: Option<Vec<usize>> = text.split_whitespace().map(|n| n.parse().ok()).collect();
        let numbers = numbers.filter(|all| !all.is_empty())?;
        let ascends = numbers.windows(2).all(|pair| pair[0] < pair[1]);
        ascends.then_some(Self::These(numbers))
    }

    pub fn have(&self, layer_idx: usize) -> bool {
        match self {
            Self::All => true,
            Self::Every { step, first } => {
                layer_idx >= *first && (layer_idx - first).is_multiple_of(*step)
            }
            Self::These(numbers) => numbers.contains(&layer_idx),
        }
    }
}

impl Described {
    /// Whether a layer has the part of a key of `[tensors]`.
    pub(super) fn has(&self, key: &str, layer_idx: usize) -> bool {
        if OF_FEED_FORWARD.contains(&key) {
            self.feed_forward_layers.have(layer_idx)
        } else {
            self.attention_layers.have(layer_idx)
        }
    }

    /// The first layer that has attention; the first of all if none has.
    pub(super) fn first_attending(&self) -> usize {
        let mut layers = 0..self.n_layers;
        layers
            .find(|idx| self.attention_layers.have(*idx))
            .unwrap_or(0)
    }

    /// Checks that the layers named exist, and that attention is in one of them.
    ///
    /// # Errors
    /// With the key, what was expected and what was found.
    pub fn check_layers(&self) -> Result<(), (&'static str, String)> {
        let n = self.n_layers;
        let named = [
            ("attention_layers", &self.attention_layers),
            ("feed_forward_layers", &self.feed_forward_layers),
        ];
        for (key, layers) in named {
            let beyond = match layers {
                Layers::These(numbers) => numbers.iter().find(|idx| **idx >= n).copied(),
                Layers::Every { first, .. } => Some(*first).filter(|first| *first >= n),
                Layers::All => None,
            };
            if let Some(found) = beyond {
                return Err((
                    key,
                    format!(
                        "expected layers up to {}, found {found}",
                        n.saturating_sub(1)
                    ),
                ));
            }
        }
        Ok(())
    }
}
