//! The parts of recurrent layers, as data. A recurrent stack has them instead of blocks.

use attnscope_compute::attention::AttentionSpec;

use crate::{Ablation, LinearSource};

/// One LSTM layer in one direction; the gates are in the order input, forget, cell, output (`torch.nn.LSTM`).
#[derive(Debug, Clone, PartialEq)]
pub struct CellSpec {
    /// Input → the four gates.
    pub input: LinearSource,
    /// Previous state → the four gates.
    pub hidden: LinearSource,
}

impl CellSpec {
    /// Width of the state.
    pub fn width(&self) -> usize {
        self.hidden.n_in
    }
}

/// A recurrent encoder: each layer reads the output of the layer before, forwards and optionally backwards, and concatenates
/// both.
#[derive(Debug, Clone, PartialEq)]
pub struct RecurrentEncoderSpec {
    /// Forwards, then backwards. // [layer][direction]
    pub layers: Vec<Vec<CellSpec>>,
}

impl RecurrentEncoderSpec {
    /// Width of the encoder's output.
    pub fn width(&self) -> usize {
        let last = self.layers.last().into_iter().flatten();
        last.map(CellSpec::width).sum()
    }
}

/// Initial states of a decoder's layers.
#[derive(Debug, Clone, PartialEq)]
pub enum Start {
    Zeros,
    /// The final state of the encoder layer with the same index.
    Encoder,
    /// tanh of a linear map of the last encoder layer's final state, one part per layer.
    Bridge(Box<Bridge>),
}

/// Maps from the last encoder layer's final state to the decoder's initial states: hidden to hidden, and cell to cell.
#[derive(Debug, Clone, PartialEq)]
pub struct Bridge {
    pub hidden: LinearSource,
    pub cell: LinearSource,
}

/// How a decoder state h and an encoder state k are scored.
#[derive(Debug, Clone, PartialEq)]
pub enum ScoreSource {
    /// h·k (Luong et al. 2015, arXiv 1508.04025).
    Dot,
    /// h·(W k), of the same paper.
    General(Box<LinearSource>),
    /// v·tanh(W h + U k) (Bahdanau et al. 2015, arXiv 1409.0473).
    Additive(Box<Additive>),
}

/// The linear maps of an additive score.
#[derive(Debug, Clone, PartialEq)]
pub struct Additive {
    pub query: LinearSource,
    pub key: LinearSource,
    /// A map to one output.
    pub vector: LinearSource,
}

/// A recurrent decoder that attends to the encoder's states after every step.
#[derive(Debug, Clone, PartialEq)]
pub struct RecurrentDecoderSpec {
    pub layers: Vec<CellSpec>,
    pub start: Start,
    /// A step's output is part of the next step's input (input feeding).
    pub feeds_back: bool,
    pub attention: AttentionSpec,
    pub scores: ScoreSource,
    /// Divides queries and keys by their root mean squares before scoring.
    pub qk_norm: bool,
    /// What replaces the context vector.
    pub ablation: Option<Ablation>,
    /// A step's output is tanh of this map of context and state, concatenated.
    pub combine: LinearSource,
    /// Tokens that end a text: a step whose input is one of them writes nothing.
    pub end_tokens: Vec<u32>,
}

/// Recurrent layers of one stack.
#[derive(Debug, Clone, PartialEq)]
pub enum Recurrence {
    Reader(RecurrentEncoderSpec),
    Writer(Box<RecurrentDecoderSpec>),
}

impl Recurrence {
    /// Every affine map, in the order of computation.
    pub fn linears(&self) -> Vec<&LinearSource> {
        match self {
            Self::Reader(reader) => reader.layers.iter().flatten().flat_map(maps).collect(),
            Self::Writer(writer) => {
                let mut linears: Vec<&LinearSource> = Vec::new();
                if let Start::Bridge(bridge) = &writer.start {
                    linears.extend([&bridge.hidden, &bridge.cell]);
                }
                linears.extend(writer.layers.iter().flat_map(maps));
                match &writer.scores {
                    ScoreSource::Dot => {}
                    ScoreSource::General(key) => linears.push(key),
                    ScoreSource::Additive(maps) => {
                        linears.extend([&maps.query, &maps.key, &maps.vector]);
                    }
                }
                linears.push(&writer.combine);
                linears
            }
        }
    }

    /// The attention of a decoder; an encoder has none.
    pub fn attention(&self) -> Option<&AttentionSpec> {
        match self {
            Self::Reader(_) => None,
            Self::Writer(writer) => Some(&writer.attention),
        }
    }
}

fn maps(cell: &CellSpec) -> [&LinearSource; 2] {
    [&cell.input, &cell.hidden]
}
