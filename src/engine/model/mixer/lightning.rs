//! A mixer by lightning attention: products of queries and keys weigh values, less the further away; a norm and a gate follow.

use std::borrow::Cow;

use super::memory::MixerMemory;
use super::parts::MixerPart;
use super::rows::{each_copy, hide_padding, mapped};
use crate::error::Result;
use crate::kernels::activate;
use crate::kernels::recurrent::{Lightning, LightningTokens, Within, lightning};
use crate::model::context::BlockContext;
use crate::model::source::{LinearSource, NormSource};
use crate::model::weights::Shelf;
use crate::ops::{Activation, Ops};

/// Lightning attention: out(sigmoid(gate) · norm(attention(act(q), act(k), act(v)))).
#[derive(Debug, Clone, PartialEq)]
pub struct LightningSpec {
    pub q: LinearSource,
    pub k: LinearSource,
    pub v: LinearSource,
    pub activation: Activation,
    pub n_heads: usize,
    pub d_head: usize,
    pub decays: Decays,
    /// Over all heads together.
    pub norm: NormSource,
    pub gate: LinearSource,
    pub o: LinearSource,
}

/// How weights fall with the distance.
#[derive(Debug, Clone, PartialEq)]
pub struct Decays {
    /// Tokens of one block.
    pub n_block: usize,
    /// A head keeps e^−slope for every step. // [head]
    pub slopes: Vec<f32>,
    /// Stored in the place of the slopes. // [head, 1, 1]
    pub stored_slopes: Option<String>,
    /// Stored factors of the state for a query. // [head, n_block, 1]
    pub of_queries: Option<String>,
    /// Stored factors of a key in the state. // [head, n_block, 1]
    pub of_keys: Option<String>,
    /// Stored factors of a query and a key of one block. // [1, head, n_block, n_block]
    pub of_pairs: Option<String>,
    /// What is stored was rounded, so that it matters where a block begins.
    pub are_rounded: bool,
}

impl LightningSpec {
    fn n_channels(&self) -> usize {
        self.n_heads * self.d_head
    }

    /// Values that are kept: a state, and keys and values of a block that is under way.
    pub(super) fn n_kept(&self, n_tokens: usize) -> usize {
        self.n_channels() * (self.d_head + 2 * (n_tokens % self.decays.n_block.max(1)))
    }

    pub(super) fn parts(&self) -> Vec<MixerPart<'_>> {
        let mut parts = vec![
            MixerPart::Map("q", &self.q),
            MixerPart::Map("k", &self.k),
            MixerPart::Map("v", &self.v),
            MixerPart::Norm("norm", &self.norm),
            MixerPart::Map("gate", &self.gate),
            MixerPart::Map("o", &self.o),
        ];
        parts.extend(
            self.stored()
                .into_iter()
                .filter_map(|(name, tensor, shape)| {
                    Some(MixerPart::Tensor(name, tensor.as_deref()?, shape))
                }),
        );
        parts
    }

    /// Tensors of decays that may be stored, with their shapes.
    fn stored(&self) -> [(&'static str, &Option<String>, Vec<usize>); 4] {
        let (decays, h) = (&self.decays, self.n_heads);
        let n = decays.n_block;
        [
            ("slopes", &decays.stored_slopes, vec![h, 1, 1]),
            ("query_decay", &decays.of_queries, vec![h, n, 1]),
            ("key_decay", &decays.of_keys, vec![h, n, 1]),
            ("pair_decay", &decays.of_pairs, vec![1, h, n, n]),
        ]
    }
}

/// The weights of lightning attention.
pub struct LightningWeights<'a, O: Ops> {
    q: O::Linear<'a>,
    k: O::Linear<'a>,
    v: O::Linear<'a>,
    norm: O::Norm<'a>,
    gate: O::Linear<'a>,
    o: O::Linear<'a>,
    /// [head]
    block_decay: Vec<f32>,
    /// [head, n_block]
    query_decay: Cow<'a, [f32]>,
    /// [head, n_block]
    key_decay: Cow<'a, [f32]>,
    /// [head, distance], or of pairs.
    within: Cow<'a, [f32]>,
}

impl<'a, O: Ops> LightningWeights<'a, O> {
    /// # Errors
    /// As for [`Shelf::linear`].
    pub(super) fn read(shelf: Shelf<'a, O>, spec: &LightningSpec) -> Result<Self> {
        let [slopes, queries, keys, pairs] = spec.stored().map(|(_, name, shape)| {
            let tensor = |name: &String| shelf.tensors.expect(name, &shape)?.widen();
            name.as_ref().map(tensor).transpose()
        });
        let n = spec.decays.n_block;
        let derived = |steps: &dyn Fn(usize) -> usize| -> Cow<'a, [f32]> {
            let heads = spec.decays.slopes.iter();
            let of_head = |slope: &f32| {
                let slope = *slope;
                (0..n).map(move |idx| (slope, idx))
            };
            let all = heads.flat_map(of_head);
            all.map(|(slope, idx)| (-slope * steps(idx) as f32).exp())
                .collect()
        };
        let slopes = slopes?.unwrap_or(Cow::Borrowed(&[]));
        let slopes = if slopes.is_empty() {
            &spec.decays.slopes
        } else {
            &*slopes
        };
        Ok(Self {
            q: shelf.linear(&spec.q)?,
            k: shelf.linear(&spec.k)?,
            v: shelf.linear(&spec.v)?,
            norm: shelf.norm(&spec.norm)?,
            gate: shelf.linear(&spec.gate)?,
            o: shelf.linear(&spec.o)?,
            block_decay: slopes
                .iter()
                .map(|slope| (-slope * n as f32).exp())
                .collect(),
            query_decay: queries?.unwrap_or_else(|| derived(&|idx| idx + 1)),
            key_decay: keys?.unwrap_or_else(|| derived(&|idx| n - 1 - idx)),
            within: pairs?.unwrap_or_else(|| derived(&|idx| idx)),
        })
    }
}

/// Fills `to` with what lightning attention adds. // from: [position, d_model]
pub(super) fn run<O: Ops>(
    context: &BlockContext<'_, O>,
    spec: &LightningSpec,
    weights: &LightningWeights<'_, O>,
    from: &O::Buffer,
    memory: Option<&mut MixerMemory>,
    to: &mut O::Buffer,
) -> Result<()> {
    let (ops, pace, width) = (context.ops, context.pace, spec.n_channels());
    let mut projected = O::Buffer::default();
    let mut rows_of = |linear| -> Result<Vec<f32>> {
        let mut rows = mapped(context, from, linear, &mut projected)?;
        activate(spec.activation, &mut rows);
        // An activation may make something of the zeros of padding.
        hide_padding(context, &mut rows, width);
        Ok(rows)
    };
    // [position, head · d_head] each
    let (q, k, v) = (
        rows_of(&weights.q)?,
        rows_of(&weights.k)?,
        rows_of(&weights.v)?,
    );
    let of = Lightning {
        n_heads: spec.n_heads,
        d_head: spec.d_head,
        n_block: spec.decays.n_block,
        block_decay: &weights.block_decay,
        query_decay: &weights.query_decay,
        key_decay: &weights.key_decay,
        within: if spec.decays.of_pairs.is_some() {
            Within::ByPair(&weights.within)
        } else {
            Within::ByDistance(&weights.within)
        },
    };
    let read = each_copy(context, q.len() / width.max(1), memory, |rows, kept| {
        let values = rows.start * width..rows.end * width;
        let tokens = LightningTokens {
            q: &q[values.clone()],
            k: &k[values.clone()],
            v: &v[values],
        };
        lightning(of, tokens, &mut kept.tail, &mut kept.state)
    }); // [position, head · d_head]
    let (mut normed, mut gate) = (O::Buffer::default(), O::Buffer::default());
    ops.put(&read, width, &mut projected)?;
    ops.norm(&projected, &weights.norm, &mut normed)?;
    ops.linear(from, &weights.gate, &mut gate, pace)?; // [position, head · d_head]
    ops.activate(Activation::Sigmoid, &mut gate)?;
    ops.multiply(&mut normed, &gate)?;
    ops.linear(&normed, &weights.o, to, pace) // [position, d_model]
}
