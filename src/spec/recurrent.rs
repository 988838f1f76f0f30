//! What recurrent layers are made of, as data. They stand where other stacks have blocks.

use attnscope_compute::attention::AttentionSpec;

use crate::{Ablation, LinearSource};

/// One LSTM layer in one direction; gates stand in the order input, forget, cell, output (`torch.nn.LSTM`).
#[derive(Debug, Clone, PartialEq)]
pub struct CellSpec {
    /// Input → the four gates.
    pub input: LinearSource,
    /// Last state → the four gates.
    pub hidden: LinearSource,
}

impl CellSpec {
    /// Width of the state.
    pub fn width(&self) -> usize {
        self.hidden.n_in
    }
}

/// An encoder: each layer reads what the one before gives, forwards and perhaps backwards, and puts both side by side.
#[derive(Debug, Clone, PartialEq)]
pub struct ReaderSpec {
    /// Forwards, then backwards. // [layer][direction]
    pub layers: Vec<Vec<CellSpec>>,
}

impl ReaderSpec {
    /// Width of its output.
    pub fn width(&self) -> usize {
        let last = self.layers.last().into_iter().flatten();
        last.map(CellSpec::width).sum()
    }
}

/// What a decoder's layers begin with.
#[derive(Debug, Clone, PartialEq)]
pub enum Start {
    Zeros,
    /// What the encoder's layer of the same number ended with.
    Encoder,
    /// tanh of a map of what the encoder's last layer ended with, one part per layer.
    Bridge(Box<Bridge>),
}

/// What the encoder's last layer ended with → what a decoder's layers begin with: outputs from outputs, memories from memories.
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

/// The maps of an additive score.
#[derive(Debug, Clone, PartialEq)]
pub struct Additive {
    pub query: LinearSource,
    pub key: LinearSource,
    /// One output.
    pub vector: LinearSource,
}

/// A decoder that looks at the encoder's states after every step.
#[derive(Debug, Clone, PartialEq)]
pub struct WriterSpec {
    pub layers: Vec<CellSpec>,
    pub start: Start,
    /// What a step gives is part of the next one's input (input feeding).
    pub feeds_back: bool,
    pub attention: AttentionSpec,
    pub scores: ScoreSource,
    /// Queries and keys are divided by their root mean squares before they are scored.
    pub qk_norm: bool,
    /// What stands in the place of the context.
    pub ablation: Option<Ablation>,
    /// tanh of this, of context and state side by side, is what a step gives.
    pub combine: LinearSource,
    /// Tokens that end what is written: the step that is given one writes nothing.
    pub end_tokens: Vec<u32>,
}

/// Recurrent layers of one stack.
#[derive(Debug, Clone, PartialEq)]
pub enum Recurrence {
    Reader(ReaderSpec),
    Writer(Box<WriterSpec>),
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

    /// The attention of a decoder.
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
