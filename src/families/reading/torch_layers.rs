//! Layers of `torch.nn`: keys are the arguments of its classes, and weights have its modules' names.

use attnscope_checkpoint::{Origin, Reader, Tensors};
use attnscope_compute::attention::AttentionSpec;
use attnscope_compute::error::{Error, Result};
use attnscope_compute::ops::Activation;
use attnscope_spec::{
    BlockSpec, CrossSpec, EmbedSpec, FeedForward, HeadSpec, LinearSource, MlpSpec, NormSource,
    PositionTable, ProjectionSpec, Sines, TableSource,
};

use super::{
    activation, even_heads, layer_norm_bias_if_stored, linear_bias_if_stored, norm_before_or_after,
    note_attention, stacked,
};

/// Value of a name key for an absent part.
pub const NONE: &str = "none";

/// Value of a name key for positions that are computed instead of stored.
const SINES: &str = "sines";

/// Settings that all layers of a model share, in encoder and decoder.
pub struct TorchLayers<'a> {
    tensors: &'a Tensors,
    pub n_heads: usize,
    pub d_model: usize,
    d_head: usize,
    d_mlp: usize,
    eps: f64,
    activation: Activation,
    is_norm_first: bool,
    embed_scale: f32,
}

impl<'a> TorchLayers<'a> {
    /// # Errors
    /// When a value of the configuration is missing or impossible.
    pub fn read(tensors: &'a Tensors, reader: &mut Reader<'_>) -> Result<Self> {
        let n_heads = reader.size("n_heads", "nhead")?;
        let d_model = reader.size("d_model", "d_model")?;
        Ok(Self {
            tensors,
            n_heads,
            d_model,
            d_head: even_heads(reader, "nhead", d_model, n_heads)?,
            d_mlp: reader.size("d_mlp", "dim_feedforward")?,
            eps: reader.number_or("norm_eps", "layer_norm_eps", 1e-5)?,
            activation: activation(reader, "activation", "relu")?,
            is_norm_first: reader.flag_or("norm_first", "norm_first", false)?,
            embed_scale: embed_scale(reader, d_model)?,
        })
    }

    /// Builds the self-attention of the encoder or decoder, and notes it.
    pub fn attention(&self, reader: &mut Reader<'_>, is_causal: bool) -> AttentionSpec {
        let attention = AttentionSpec::plain(self.n_heads, self.n_heads, self.d_head, is_causal);
        note_attention(reader, &attention, Origin::Family);
        attention
    }

    /// Builds the layers under a prefix; those of a decoder also attend to the encoder.
    ///
    /// # Errors
    /// When there are more layers than tensors.
    pub fn blocks(
        &self,
        reader: &Reader<'_>,
        (layers, n_layers): (&str, usize),
        attention: &AttentionSpec,
        has_cross: bool,
    ) -> Result<Vec<BlockSpec>> {
        if n_layers > self.tensors.len() {
            let problem = format!("expected at most one layer per tensor, found {n_layers}");
            return Err(Error::config(reader.path(), "num_layers", problem));
        }
        let block = |layer_idx: usize| {
            let at = format!("{layers}{layer_idx}");
            self.block(&at, attention.clone(), has_cross)
        };
        Ok((0..n_layers).map(block).collect())
    }

    fn block(&self, at: &str, attention: AttentionSpec, has_cross: bool) -> BlockSpec {
        let mlp = MlpSpec::plain(
            self.linear(&format!("{at}.linear1"), self.d_model, self.d_mlp),
            self.linear(&format!("{at}.linear2"), self.d_mlp, self.d_model),
            self.activation,
        );
        // The norm has the same name before its branch and after the residual sum.
        let placed = |name: &str| {
            norm_before_or_after(self.norm(&format!("{at}.{name}")), self.is_norm_first)
        };
        let (attn_pre, attn_post) = placed("norm1");
        let (mlp_pre, mlp_post) = placed(if has_cross { "norm3" } else { "norm2" });
        let cross = has_cross.then(|| {
            let (pre, post) = placed("norm2");
            let attention = AttentionSpec {
                is_cross: true,
                ..AttentionSpec::plain(self.n_heads, self.n_heads, self.d_head, false)
            };
            Box::new(CrossSpec {
                pre,
                post,
                ..CrossSpec::plain(attention, self.projections(&format!("{at}.multihead_attn")))
            })
        });
        let projections = self.projections(&format!("{at}.self_attn"));
        BlockSpec {
            attn_pre,
            attn_post,
            cross,
            mlp_pre,
            mlp_post,
            ..BlockSpec::plain(attention, projections, FeedForward::Dense(Box::new(mlp)))
        }
    }

    fn projections(&self, at: &str) -> ProjectionSpec {
        let d_model = self.d_model;
        let bias = Some(format!("{at}.in_proj_bias")).filter(|bias| self.tensors.contains(bias));
        let weight = format!("{at}.in_proj_weight");
        let fused = LinearSource::whole(weight, bias, d_model, 3 * d_model);
        let [q, k, v] = stacked(&fused, [d_model; 3]);
        let o = self.linear(&format!("{at}.out_proj"), d_model, d_model);
        ProjectionSpec::plain(q, k, v, o)
    }

    fn linear(&self, name: &str, n_in: usize, n_out: usize) -> LinearSource {
        linear_bias_if_stored(self.tensors, name, n_in, n_out)
    }

    pub fn norm(&self, name: &str) -> NormSource {
        layer_norm_bias_if_stored(self.tensors, name, self.d_model, self.eps)
    }

    pub fn head(&self, name: &str, d_vocab: usize) -> HeadSpec {
        HeadSpec::plain(self.linear(name, self.d_model, d_vocab))
    }

    /// Scaled token embeddings, with positions added.
    pub fn embed(
        &self,
        tokens: String,
        d_vocab: usize,
        positions: Option<PositionTable>,
    ) -> EmbedSpec {
        let table = TableSource {
            tensor: tokens,
            n_rows: d_vocab,
            width: self.d_model,
        };
        EmbedSpec {
            scale: self.embed_scale,
            positions,
            ..EmbedSpec::plain(table)
        }
    }

    /// Reads positions: none, sines, or a table whose length has its own key.
    ///
    /// # Errors
    /// When there is a table without a length.
    pub fn positions(
        &self,
        reader: &mut Reader<'_>,
        word: &str,
        (n_ctx, length): (&'static str, &str),
    ) -> Result<Option<PositionTable>> {
        Ok(match word {
            NONE => None,
            SINES => Some(PositionTable::Sinusoid(Sines::Interleaved)),
            tensor => Some(PositionTable::Stored(TableSource {
                tensor: tensor.to_owned(),
                n_rows: reader.size(n_ctx, length)?,
                width: self.d_model,
            })),
        })
    }
}

/// Reads the name of a part that may be absent.
///
/// # Errors
/// When it is not a word.
pub fn named(reader: &mut Reader<'_>, knob: &'static str) -> Result<Option<String>> {
    let name = reader.word_or(knob, knob, NONE)?;
    Ok(Some(name).filter(|name| name != NONE))
}

/// Factor of the token embeddings: a number, or √d_model.
fn embed_scale(reader: &mut Reader<'_>, d_model: usize) -> Result<f32> {
    const KEY: &str = "embed_scale";
    if reader.is_word(KEY, KEY, "sqrt_d") {
        reader.word_or(KEY, KEY, "sqrt_d")?;
        return Ok((d_model as f64).sqrt() as f32);
    }
    Ok(reader.number_or(KEY, KEY, 1.0)? as f32)
}
