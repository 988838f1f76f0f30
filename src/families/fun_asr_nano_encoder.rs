//! The encoder of Fun-ASR-Nano (SenseVoice): attention beside a memory of its values. The first layer reads rows of another width, which
//! no residual goes around.

use attnscope_checkpoint::{Checkpoint, Origin, Reader, Tensors};
use attnscope_compute::attention::AttentionSpec;
use attnscope_compute::error::{Error, Result};
use attnscope_compute::ops::Activation;
use attnscope_spec::mixers::ValueMemorySpec;
use attnscope_spec::{
    BlockRow, BlockSpec, FeedForward, KeptStart, MlpSpec, ModelSpec, NormSource, ProjectionSpec,
    RowSpec, TokenMixer,
};

use super::Family;
use super::reading::{
    activation, even_heads, given_rows, layer_norm, linear, note_attention, prefix,
};

pub const FAMILY: Family = Family::own("fun_asr_nano_encoder", "FunAsrNano", read);

/// A block's sizes.
struct Block<'a> {
    tensors: &'a Tensors,
    d_model: usize,
    d_mlp: usize,
    n_wide: usize,
    activation: Activation,
    eps: f64,
    attention: AttentionSpec,
    /// Columns of a row beside the residual: those that the first layer reads, if it reads others.
    n_kept: usize,
}

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    const HEADS: &str = "num_attention_heads";
    const LAST: &str = "num_timestamp_prediction_layers";
    let tensors = &checkpoint.tensors;
    // Of the sines that are part of what is given.
    reader.value("max_position_embeddings");
    let default = |key: &str| Origin::Default(key.to_owned());
    let mut size = |knob, key: &str, usual| reader.size_or(knob, key, usual, default(key));
    let d_model = size("d_model", "hidden_size", 512)?;
    let n_heads = size("n_heads", HEADS, 4)?;
    let d_mlp = size("d_mlp", "intermediate_size", 2048)?;
    let n_wide = size("memory_width", "fsmn_kernel_size", 11)?;
    let n_mels = size("n_mels", "num_mel_bins", 80)?;
    let n_stacked = size("stacked_frames", "num_stacked_frames", 7)?;
    let n_layers = reader.layers("num_hidden_layers")?;
    let n_last = reader.count_or("timestamp_layers", LAST, 20)?;
    let width = n_mels.saturating_mul(n_stacked);
    let Some(n_first) = n_layers.checked_sub(n_last) else {
        let problem = format!("expected at most all {n_layers} layers, found {n_last}");
        return Err(Error::config(reader.path(), LAST, problem));
    };
    let d_head = even_heads(reader, HEADS, d_model, n_heads)?;
    let block = Block {
        tensors,
        d_model,
        d_mlp,
        n_wide,
        activation: activation(reader, "hidden_act", "relu")?,
        eps: reader.number_or("norm_eps", "layer_norm_eps", 1e-5)?,
        attention: AttentionSpec::plain(n_heads, n_heads, d_head, false),
        n_kept: if width == d_model { 0 } else { width },
    };
    note_attention(reader, &block.attention, Origin::Family);
    given_rows::remark(
        reader,
        "its feature extractor, times √hidden_size and with sines of positions,",
    );
    let bases = ["", "audio_tower.", "model.audio_tower."];
    let first = "layers.0.input_layernorm.weight";
    let base = prefix(tensors, &bases, first);
    let blocks = (0..n_layers)
        .map(|layer_idx| {
            // The last layer of those that write, and the last of all, norm what they give.
            let ends = layer_idx + 1 == n_first || layer_idx + 1 == n_layers;
            block.read(&format!("{base}layers.{layer_idx}"), layer_idx == 0, ends)
        })
        .collect();
    let first = (format!("{base}{first}"), width);
    let mut spec = given_rows::model(FAMILY.model_type, first, blocks, None);
    spec.d_model = d_model;
    if block.n_kept > 0 {
        spec.stacks[0].rows = Some(Box::new(RowSpec {
            d_model,
            streams: None,
            n_kept: width,
            first: KeptStart::Rows,
        }));
    }
    Ok(spec)
}

impl Block<'_> {
    fn read(&self, at: &str, is_first: bool, ends: bool) -> BlockSpec {
        let (d, reads_kept) = (self.d_model, is_first && self.n_kept > 0);
        let n_in = if reads_kept { self.n_kept } else { d };
        let map = |name: &str, n_in, n_out| linear(&format!("{at}.{name}"), n_in, n_out, true);
        let [q, k, v] =
            ["q_proj", "k_proj", "v_proj"].map(|name| map(&format!("self_attn.{name}"), n_in, d));
        let memory = ValueMemorySpec {
            values: v.clone(),
            kernel: format!("{at}.self_attn.fsmn.conv.weight"),
            n_wide: self.n_wide,
            n_before: (self.n_wide - 1) / 2,
        };
        let projections = ProjectionSpec {
            reads_kept,
            ..ProjectionSpec::plain(q, k, v, map("self_attn.o_proj", d, d))
        };
        let mlp = MlpSpec::plain(
            map("mlp.fc1", d, self.d_mlp),
            map("mlp.fc2", self.d_mlp, d),
            self.activation,
        );
        let row = (self.n_kept > 0).then_some(BlockRow {
            d_model: d,
            streams: None,
            n_kept: self.n_kept,
            beside: false,
            shortcut: None,
            join: None,
        });
        BlockSpec {
            parallel_mixer: Some(Box::new(TokenMixer::ValueMemory(Box::new(memory)))),
            attn_pre: Some(self.norm(&format!("{at}.input_layernorm"), n_in)),
            mlp_pre: Some(self.norm(&format!("{at}.post_attention_layernorm"), d)),
            mlp_post: ends.then(|| self.norm(&format!("{at}.final_layernorm"), d)),
            row: row.map(Box::new),
            ..BlockSpec::plain(
                self.attention.clone(),
                projections,
                FeedForward::Dense(Box::new(mlp)),
            )
        }
    }

    fn norm(&self, name: &str, width: usize) -> NormSource {
        layer_norm(self.tensors, name, width, self.eps)
    }
}
