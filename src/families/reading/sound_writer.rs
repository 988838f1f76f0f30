//! Encoder–decoders that hear and write, whose blocks have Llama's names for attention: Moonshine, and the decoder of Canary.

use attnscope_checkpoint::{Checkpoint, Reader, Tensors};
use attnscope_compute::attention::{AttentionSpec, RopeSpec};
use attnscope_compute::error::Result;
use attnscope_compute::ops::Activation;
use attnscope_prompt::PositionRule;
use attnscope_spec::{
    BlockSpec, CrossSpec, EmbedSpec, FeedForward, HeadSpec, LinearSource, MlpSpec, ModelSpec,
    NormSource, ProjectionSpec, Stack, StackSpec,
};

use super::speech::Generation;
use super::{layer_norm, linear, stacked, tied_head};

/// Epsilon of all norms; no configuration states it.
const EPS: f64 = 1e-5;

/// One of the two stacks.
pub struct Side<'a> {
    pub tensors: &'a Tensors,
    /// What the names of its tensors begin with.
    pub base: String,
    pub stack: Stack,
    pub n_layers: usize,
    pub n_heads: usize,
    pub n_kv_heads: usize,
    pub d_head: usize,
    pub d_model: usize,
    pub d_mlp: usize,
    pub activation: Activation,
    /// Whether the maps of queries, keys and values have biases, and that of the output.
    pub has_bias: bool,
    pub output_has_bias: bool,
    pub norms_have_bias: bool,
    /// Whether the feed-forward layer multiplies by an activated gate, whose map is stored behind the other.
    pub is_gated: bool,
    pub rope: Option<RopeSpec>,
    pub last_norm: &'static str,
}

impl Side<'_> {
    pub fn norm(&self, name: &str) -> NormSource {
        let norm = layer_norm(
            self.tensors,
            &format!("{}{name}", self.base),
            self.d_model,
            EPS,
        );
        NormSource {
            bias: norm.bias.filter(|_| self.norms_have_bias),
            ..norm
        }
    }

    pub fn attention(&self) -> AttentionSpec {
        let is_causal = self.stack == Stack::Decoder;
        AttentionSpec {
            rope: self.rope.clone(),
            ..AttentionSpec::plain(self.n_heads, self.n_kv_heads, self.d_head, is_causal)
        }
    }

    fn projections(&self, at: &str) -> ProjectionSpec {
        let [d_q, d_kv] = [self.n_heads, self.n_kv_heads].map(|n| n * self.d_head);
        let d = self.d_model;
        let [q, k, v] = [("q_proj", d_q), ("k_proj", d_kv), ("v_proj", d_kv)]
            .map(|(name, n_out)| linear(&format!("{at}.{name}"), d, n_out, self.has_bias));
        let o = linear(&format!("{at}.o_proj"), d_q, d, self.output_has_bias);
        ProjectionSpec::plain(q, k, v, o)
    }

    fn mlp(&self, at: &str) -> MlpSpec {
        let (d, d_mlp) = (self.d_model, self.d_mlp);
        let down = linear(&format!("{at}.fc2"), d_mlp, d, true);
        let up = |n_out| linear(&format!("{at}.fc1"), d, n_out, true);
        if !self.is_gated {
            return MlpSpec::plain(up(d_mlp), down, self.activation);
        }
        let [up, gate, _] = stacked(&up(2 * d_mlp), [d_mlp, d_mlp, 0]);
        MlpSpec {
            gate: Some(gate),
            ..MlpSpec::plain(up, down, self.activation)
        }
    }

    fn block(&self, layer_idx: usize) -> BlockSpec {
        let at = format!("layers.{layer_idx}");
        let is_decoder = self.stack == Stack::Decoder;
        let inside = |name: &str| format!("{}{at}.{name}", self.base);
        let second = self.norm(&format!("{at}.post_attention_layernorm"));
        let (cross, mlp_pre) = if is_decoder {
            let attention = AttentionSpec {
                is_cross: true,
                ..AttentionSpec::plain(self.n_heads, self.n_kv_heads, self.d_head, false)
            };
            let cross = CrossSpec {
                pre: Some(second),
                ..CrossSpec::plain(attention, self.projections(&inside("encoder_attn")))
            };
            let third = self.norm(&format!("{at}.final_layernorm"));
            (Some(Box::new(cross)), third)
        } else {
            (None, second)
        };
        BlockSpec {
            attn_pre: Some(self.norm(&format!("{at}.input_layernorm"))),
            cross,
            mlp_pre: Some(mlp_pre),
            ..BlockSpec::plain(
                self.attention(),
                self.projections(&inside("self_attn")),
                FeedForward::Dense(Box::new(self.mlp(&inside("mlp")))),
            )
        }
    }

    /// The stack behind some embedding.
    pub fn stack(&self, embed: EmbedSpec) -> StackSpec {
        let blocks = (0..self.n_layers).map(|layer_idx| self.block(layer_idx));
        let last = Some(self.norm(self.last_norm));
        StackSpec {
            stack: self.stack,
            ..StackSpec::only(embed, blocks.collect(), last)
        }
    }
}

/// A model of what hears and what writes; the table of tokens is tied to the head unless a head is stored.
///
/// # Errors
/// When a value of the configuration is impossible.
pub fn whole(
    family: &'static str,
    (checkpoint, reader): (&Checkpoint, &mut Reader<'_>),
    [hearing, writing]: [StackSpec; 2],
    (n_ctx, head_has_bias): (usize, bool),
) -> Result<ModelSpec> {
    let words = writing.embed.tokens.clone();
    let (d_vocab, d_model) = (words.n_rows, words.width);
    let generation = Generation::of(checkpoint);
    let start = generation.start(reader, d_vocab)?;
    let stored = tied_head(
        reader,
        &checkpoint.tensors,
        &["proj_out.weight"],
        &words.tensor,
        true,
    )?;
    let bias = head_has_bias.then(|| "proj_out.bias".to_owned());
    let head = HeadSpec::plain(LinearSource::whole(stored, bias, d_model, d_vocab));
    Ok(ModelSpec {
        d_vocab,
        n_ctx: Some(n_ctx),
        positions: PositionRule::Index,
        is_causal_lm: true,
        decoder_start: Some(start),
        stacks: vec![
            StackSpec {
                stack: Stack::Encoder,
                ..hearing.clone()
            },
            writing,
        ],
        ..ModelSpec::of_one_stack(family, hearing, Some(head))
    })
}
