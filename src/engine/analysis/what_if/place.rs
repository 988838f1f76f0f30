//! Where a change holds: `L3`, `L3H5`, `encoder.L3H5`, `decoder.L3.cross`; nothing said means everywhere.

use std::fmt;
use std::str::FromStr;

use super::WhatIf;
use crate::error::{Error, Result};
use crate::model::{ModelSpec, Stack};

/// Where a change holds; what is left out means everywhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Where {
    pub stack: Option<Stack>,
    pub layer_idx: Option<usize>,
    pub head_idx: Option<usize>,
}

impl Where {
    /// Whether a layer of a grid is meant.
    pub fn holds(self, grid: Stack, layer_idx: usize) -> bool {
        let is_layer = self.layer_idx.is_none_or(|wanted| wanted == layer_idx);
        is_layer && self.stack.is_none_or(|wanted| wanted == grid)
    }

    /// # Errors
    /// When the model has no such layer or head.
    pub(super) fn check(self, spec: &ModelSpec, what_if: &WhatIf) -> Result<()> {
        let grids: Vec<Stack> = spec
            .grids()
            .into_iter()
            .filter(|grid| self.stack.is_none_or(|wanted| wanted == *grid))
            .collect();
        let refused = |expected: String| {
            Err(Error::Setting(format!(
                "--what-if {what_if}: there is no {self} in this model; expected {expected}"
            )))
        };
        if grids.is_empty() {
            let known: Vec<&str> = spec
                .grids()
                .iter()
                .filter_map(|grid| prefix(*grid))
                .collect();
            return refused(match known.is_empty() {
                true => "a place of the only stack, such as L0 or L0H1".to_owned(),
                false => format!("a place of {}", known.join(" or ")),
            });
        }
        let Some(layer_idx) = self.layer_idx else {
            return Ok(());
        };
        let with_layer = grids
            .iter()
            .filter(|grid| layer_idx < spec.n_layers(**grid));
        let with_layer: Vec<&Stack> = with_layer.collect();
        if with_layer.is_empty() {
            let most = grids.iter().map(|grid| spec.n_layers(*grid)).max();
            return refused(format!("a layer of 0..{}", most.unwrap_or(1).max(1) - 1));
        }
        let Some(head_idx) = self.head_idx else {
            return Ok(());
        };
        let most = with_layer
            .iter()
            .map(|grid| spec.n_heads(**grid, layer_idx))
            .max();
        let n_heads = most.unwrap_or(0);
        match head_idx < n_heads {
            true => Ok(()),
            false => refused(format!("a head of 0..{}", n_heads.max(1) - 1)),
        }
    }
}

fn prefix(grid: Stack) -> Option<&'static str> {
    match grid {
        Stack::Only => None,
        Stack::Encoder => Some("encoder.…"),
        Stack::Decoder => Some("decoder.…"),
        Stack::Cross => Some("decoder.….cross"),
    }
}

impl FromStr for Where {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let wrong = || {
            format!(
                "expected a place such as L3, L3H5, encoder.L3H5 or decoder.L3.cross, found {text:?}"
            )
        };
        let (is_cross, rest) = match text.strip_suffix(".cross") {
            Some(rest) => (true, rest),
            None => (text == "cross", text),
        };
        let (stack, rest) = match rest.split_once('.') {
            Some(("encoder", rest)) => (Some(Stack::Encoder), rest),
            Some(("decoder", rest)) => (Some(Stack::Decoder), rest),
            Some(_) => return Err(wrong()),
            None => match rest {
                "encoder" => (Some(Stack::Encoder), ""),
                "decoder" => (Some(Stack::Decoder), ""),
                "cross" => (None, ""),
                rest => (None, rest),
            },
        };
        let stack = match (is_cross, stack) {
            (true, None | Some(Stack::Decoder)) => Some(Stack::Cross),
            (true, _) => return Err(wrong()),
            (false, stack) => stack,
        };
        if rest.is_empty() {
            return match stack {
                Some(_) => Ok(Self {
                    stack,
                    ..Self::default()
                }),
                None => Err(wrong()),
            };
        }
        let numbers = rest.strip_prefix('L').ok_or_else(wrong)?;
        let number = |text: &str| text.parse::<usize>().map_err(|_| wrong());
        let (layer, head) = match numbers.split_once('H') {
            Some((layer, head)) => (layer, Some(number(head)?)),
            None => (numbers, None),
        };
        Ok(Self {
            stack,
            layer_idx: Some(number(layer)?),
            head_idx: head,
        })
    }
}

impl fmt::Display for Where {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = Vec::new();
        match self.stack {
            Some(Stack::Encoder) => parts.push("encoder".to_owned()),
            Some(Stack::Decoder | Stack::Cross) => parts.push("decoder".to_owned()),
            Some(Stack::Only) | None => {}
        }
        let head = self
            .head_idx
            .map_or(String::new(), |head_idx| format!("H{head_idx}"));
        parts.extend(
            self.layer_idx
                .map(|layer_idx| format!("L{layer_idx}{head}")),
        );
        if self.stack == Some(Stack::Cross) {
            parts.push("cross".to_owned());
        }
        f.write_str(&parts.join("."))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_read_as_they_are_written() {
        for text in [
            "L3",
            "L3H5",
            "encoder.L3H5",
            "decoder.L3.cross",
            "decoder.L0H2.cross",
            "encoder",
            "decoder.cross",
        ] {
            let place: Where = text.parse().unwrap_or_else(|e| panic!("{text}: {e}"));
            assert_eq!(place.to_string(), text);
        }
        let cross: Where = "L1.cross".parse().expect("a place");
        assert_eq!(cross.to_string(), "decoder.L1.cross");
        for text in [
            "",
            "3",
            "L",
            "LH1",
            "L3H",
            "L-1",
            "encoder.L0.cross",
            "other.L0",
            "L3.",
            "L3H5x",
        ] {
            assert!(text.parse::<Where>().is_err(), "{text}");
        }
    }
}
