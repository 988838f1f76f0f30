//! A second, narrower stream of every position, which attends together with the residual, as data.

use super::embed::ConstantRow;
use super::feed_forward::MlpSpec;
use super::norm_source::NormSource;
use super::source::{LinearSource, TableSource};

/// What a block does with the second stream. In each head, the scores of both streams are summed, and one pattern weighs the values of
/// each; everything else, a stream does by itself: x becomes norm(x + o(heads)), then norm(x + mlp(x)).
#[derive(Debug, Clone, PartialEq)]
pub struct SideStream {
    pub q: LinearSource,
    pub k: LinearSource,
    pub v: LinearSource,
    pub o: LinearSource,
    /// Multiplies its scores before those of the residual, which the scale of the attention multiplies, are added.
    pub factor: f32,
    pub attn_post: NormSource,
    pub mlp: MlpSpec,
    pub mlp_post: NormSource,
}

impl SideStream {
    pub fn maps(&self) -> [&LinearSource; 4] {
        [&self.q, &self.k, &self.v, &self.o]
    }
}

/// How the second stream begins, where it says nothing of a token: norm(map(constants) + positions).
#[derive(Debug, Clone, PartialEq)]
pub struct SideEmbed {
    pub constants: Vec<ConstantRow>,
    pub map: LinearSource,
    pub positions: TableSource,
    pub norm: NormSource,
}

/// What the kept part of a row holds before the first block.
#[derive(Debug, Clone, PartialEq)]
pub enum KeptStart {
    /// Zeros.
    Nothing,
    /// The embedding, in the first columns.
    Embedding,
    /// The embedding, whose width is theirs; the residual begins with zeros.
    Rows,
    /// A second stream.
    Side(Box<SideEmbed>),
}
