//! Names of recorded arrays: our own, TransformerLens's, Hugging Face's tuples, and modules without a layer number.

use attnscope_forward::Hook;
use attnscope_spec::Stack;

/// Parsed array name: stack, layer and hook.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Name {
    pub stack: Stack,
    /// Layer number; for modules without a number, their path and call, which sort by name.
    pub layer: Layer,
    pub hook: Hook,
}

/// A layer by its number, or a module by its path and call.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Layer {
    Numbered(usize),
    /// Digits compare as numbers, so layer 10 comes after layer 9.
    Module(Vec<Piece>),
}

/// A run of digits or of other characters in a module's path.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Piece {
    Digits(u64),
    Text(String),
}

impl Name {
    /// A name of somebody's own, taken as that of a module.
    pub fn of_module(name: &str, hook: Hook) -> Self {
        Self {
            stack: Stack::Only,
            layer: Layer::Module(pieces(name)),
            hook,
        }
    }

    /// Parses a name; `None` if it is not one of a layer's hooks.
    pub fn parse(name: &str) -> Option<Self> {
        own(name).or_else(|| tuple(name)).or_else(|| module(name))
    }
}

/// Parses `decoder.blocks.3.cross_attn.pattern`, and TransformerLens's `blocks.3.attn.hook_pattern`.
fn own(name: &str) -> Option<Name> {
    let (stack, rest) = match name.split_once(".blocks.") {
        Some(("encoder", rest)) => (Stack::Encoder, rest),
        Some(("decoder", rest)) => (Stack::Decoder, rest),
        Some(_) => return None,
        None => (Stack::Only, name.strip_prefix("blocks.")?),
    };
    let (number, rest) = rest.split_once('.')?;
    let (stack, last) = match rest.split_once('.') {
        Some(("attn", last)) => (stack, last),
        Some(("cross_attn", last)) => (Stack::Cross, last),
        Some(_) => return None,
        // Code that records the outputs of modules gives this name to an attention's output.
        None if rest == "attn" => return None,
        None => (stack, rest),
    };
    Some(Name {
        stack,
        layer: Layer::Numbered(number.parse().ok()?),
        hook: hook(last)?,
    })
}

fn hook(last: &str) -> Option<Hook> {
    match last.strip_prefix("hook_").unwrap_or(last) {
        "attn_scores" => Some(Hook::Scores),
        "attn" => Some(Hook::Pattern),
        last => {
            let hook: Hook = last.parse().ok()?;
            (hook != Hook::Logits && !hook.is_measure()).then_some(hook)
        }
    }
}

/// Parses `attentions.3`, as Hugging Face numbers its outputs, and `arr_3`, as NumPy numbers unnamed arrays.
fn tuple(name: &str) -> Option<Name> {
    let stacks = [
        ("attentions.", Stack::Only),
        ("arr_", Stack::Only),
        ("encoder_attentions.", Stack::Encoder),
        ("decoder_attentions.", Stack::Decoder),
        ("cross_attentions.", Stack::Cross),
    ];
    stacks.into_iter().find_map(|(before, stack)| {
        let number = name.strip_prefix(before)?.parse().ok()?;
        Some(Name {
            stack,
            layer: Layer::Numbered(number),
            hook: Hook::Pattern,
        })
    })
}

/// Parses `<module.path>#<call>.pattern`.
fn module(name: &str) -> Option<Name> {
    let (path, rest) = name.rsplit_once('#')?;
    let (call, last) = rest.split_once('.')?;
    call.parse::<u64>().ok().filter(|_| !path.is_empty())?;
    Some(Name {
        stack: Stack::Only,
        layer: Layer::Module(pieces(&format!("{path}#{call}"))),
        hook: hook(last)?,
    })
}

fn pieces(text: &str) -> Vec<Piece> {
    let mut pieces = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let is_digit = first.is_ascii_digit();
        let end = rest
            .find(|c: char| c.is_ascii_digit() != is_digit)
            .unwrap_or(rest.len());
        let (piece, after) = rest.split_at(end);
        pieces.push(match piece.parse() {
            Ok(number) if is_digit => Piece::Digits(number),
            _ => Piece::Text(piece.to_owned()),
        });
        rest = after;
    }
    pieces
}

impl Layer {
    /// Name shared by layers of one kind: a module's path with `#` for its numbers; empty for numbered layers.
    pub fn kind(&self) -> String {
        self.path(|_| "#".to_owned()).unwrap_or_default()
    }

    /// Module path; `None` for a numbered layer.
    pub fn module(&self) -> Option<String> {
        self.path(|number| number.to_string())
    }

    fn path(&self, digits: impl Fn(u64) -> String) -> Option<String> {
        let Self::Module(pieces) = self else {
            return None;
        };
        let text = |piece: &Piece| match piece {
            Piece::Digits(number) => digits(*number),
            Piece::Text(text) => text.clone(),
        };
        Some(pieces.iter().map(text).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_spelling_of_a_hook_is_parsed() {
        for stack in [Stack::Only, Stack::Encoder, Stack::Decoder, Stack::Cross] {
            let of_layer = |hook: &Hook| *hook != Hook::Logits && !hook.is_measure();
            for hook in Hook::ALL.into_iter().filter(of_layer) {
                let layer = Layer::Numbered(11);
                let name = hook.full_name(stack, 11);
                let expected = Name { stack, layer, hook };
                assert_eq!(Name::parse(&name), Some(expected), "{name}");
            }
        }
        for (name, stack, layer, hook) in [
            ("blocks.2.attn.hook_rot_k", Stack::Only, 2, Hook::RotK),
            (
                "blocks.2.attn.hook_attn_scores",
                Stack::Only,
                2,
                Hook::Scores,
            ),
            ("blocks.2.hook_resid_pre", Stack::Only, 2, Hook::ResidPre),
            ("attentions.2", Stack::Only, 2, Hook::Pattern),
            ("arr_0", Stack::Only, 0, Hook::Pattern),
            ("cross_attentions.1", Stack::Cross, 1, Hook::Pattern),
        ] {
            let layer = Layer::Numbered(layer);
            let expected = Name { stack, layer, hook };
            assert_eq!(Name::parse(name), Some(expected), "{name}");
        }
        let of_module = Name::parse("net.9.att#1.pattern").expect("a name");
        assert_eq!(of_module.layer.module().as_deref(), Some("net.9.att#1"));
        assert_eq!(of_module.layer.kind(), "net.#.att##");
        assert!(of_module < Name::parse("net.10.att#0.pattern").expect("a name"));
        for other in [
            "blocks.0.attn.W_Q",
            "blocks.0.mlp.c_fc.weight",
            "transformer.h.0.attn.c_attn.weight",
            "blocks.x.attn.q",
            "blocks.0.attn",
            "tokens",
            "#1.q",
        ] {
            assert_eq!(Name::parse(other), None, "{other}");
        }
    }
}
