//! Names of captured arrays: our own, TransformerLens's, Hugging Face's tuples, and modules without a layer number.

use attnscope_spec::Stack;

/// Kind of value that an array of an attention holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    Q,
    K,
    V,
    RotQ,
    RotK,
    Scores,
    Pattern,
    ResidPost,
}

impl Part {
    /// Whether it holds a vector per head and position, rather than a number per query and key.
    pub fn is_vectors(self) -> bool {
        matches!(self, Self::Q | Self::K | Self::V | Self::RotQ | Self::RotK)
    }
}

/// Whether the position axis comes first: TransformerLens's `hook_q` is [batch, position, head, d_head].
pub fn has_positions_first(name: &str) -> bool {
    name.contains(".hook_")
}

/// Parsed array name: stack, layer and part.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Name {
    pub stack: Stack,
    /// Layer number; for modules without a number, their path and call, which sort by name.
    pub layer: Layer,
    pub part: Part,
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

/// Parses a name; `None` if it is not one of captured attention.
pub fn parse(name: &str) -> Option<Name> {
    own(name).or_else(|| tuple(name)).or_else(|| module(name))
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
    let layer = Layer::Numbered(number.parse().ok()?);
    let of = |stack, part| {
        Some(Name {
            stack,
            layer: layer.clone(),
            part,
        })
    };
    match rest {
        "resid_post" | "hook_resid_post" => of(stack, Part::ResidPost),
        _ => match rest.split_once('.')? {
            ("attn", last) => of(stack, part(last)?),
            ("cross_attn", last) => of(Stack::Cross, part(last)?),
            _ => None,
        },
    }
}

fn part(last: &str) -> Option<Part> {
    Some(match last.strip_prefix("hook_").unwrap_or(last) {
        "q" => Part::Q,
        "k" => Part::K,
        "v" => Part::V,
        "rot_q" => Part::RotQ,
        "rot_k" => Part::RotK,
        "scores" | "attn_scores" => Part::Scores,
        "pattern" | "attn" => Part::Pattern,
        _ => return None,
    })
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
            part: Part::Pattern,
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
        part: part(last)?,
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
        match self {
            Self::Numbered(_) => String::new(),
            Self::Module(pieces) => {
                let text = |piece: &Piece| match piece {
                    Piece::Digits(_) => "#".to_owned(),
                    Piece::Text(text) => text.clone(),
                };
                pieces.iter().map(text).collect()
            }
        }
    }

    /// Module path; `None` for a numbered layer.
    pub fn module(&self) -> Option<String> {
        match self {
            Self::Numbered(_) => None,
            Self::Module(pieces) => {
                let text = |piece: &Piece| match piece {
                    Piece::Digits(number) => number.to_string(),
                    Piece::Text(text) => text.clone(),
                };
                Some(pieces.iter().map(text).collect())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_and_foreign_array_names_are_parsed() {
        let read = |name: &str| {
            let name = parse(name)?;
            let layer = match &name.layer {
                Layer::Numbered(number) => number.to_string(),
                module => module.module()?,
            };
            Some((name.stack, layer, name.part))
        };
        let is = |stack, layer: &str, part| Some((stack, layer.to_owned(), part));
        assert_eq!(
            read("blocks.3.attn.pattern"),
            is(Stack::Only, "3", Part::Pattern)
        );
        assert_eq!(
            read("decoder.blocks.3.cross_attn.scores"),
            is(Stack::Cross, "3", Part::Scores)
        );
        assert_eq!(
            read("encoder.blocks.0.attn.rot_q"),
            is(Stack::Encoder, "0", Part::RotQ)
        );
        assert_eq!(
            read("blocks.11.attn.hook_attn_scores"),
            is(Stack::Only, "11", Part::Scores)
        );
        assert_eq!(
            read("blocks.11.hook_resid_post"),
            is(Stack::Only, "11", Part::ResidPost)
        );
        assert_eq!(read("attentions.2"), is(Stack::Only, "2", Part::Pattern));
        assert_eq!(read("arr_0"), is(Stack::Only, "0", Part::Pattern));
        assert_eq!(
            read("net.9.att#1.pattern"),
            is(Stack::Only, "net.9.att#1", Part::Pattern)
        );
        for weights in [
            "blocks.0.attn.W_Q",
            "transformer.h.0.attn.c_attn.weight",
            "blocks.x.attn.q",
            "tokens",
            "#1.q",
        ] {
            assert_eq!(read(weights), None, "{weights}");
        }
        assert!(parse("net.9.att#0.pattern") < parse("net.10.att#0.pattern"));
    }
}
