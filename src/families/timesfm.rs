//! TimesFM over rows of patches of a series: a learned factor for each dimension of a query in place of 1/√d, and layer norms before
//! feed-forward layers alone.

use attnscope_checkpoint::{Checkpoint, Origin, Reader};
use attnscope_compute::attention::{AttentionSpec, Scale};
use attnscope_compute::error::Result;
use attnscope_compute::ops::Activation;
use attnscope_spec::{
    BlockSpec, FactorRule, FactorsHeld, FeedForward, MlpSpec, ModelSpec, OutputFactors,
    ProjectionSpec,
};

use super::Family;
use super::reading::{given_rows, layer_norm, linear, note_attention, prefix, rms_norm};

pub const FAMILY: Family = Family::own("timesfm", "TimesFm", read).leaving_unread(&[
    "freq_emb.weight",
    "horizon_ff_layer.*",
    "input_ff_layer.*",
    "inv_timescales",
]);

/// The epsilon of the norms before feed-forward layers; no configuration states it.
const EPS: f64 = 1e-6;

/// Keys of what rows are made of, and of what is predicted.
const ASIDE: [&str; 12] = [
    "context_length",
    "freq_size",
    "horizon_length",
    "max_timescale",
    "min_timescale",
    "pad_val",
    "patch_length",
    "quantiles",
    "tolerance",
    "use_positional_embedding",
    "normalize_inputs",
    "is_encoder_decoder",
];

/// What the softplus of a stored value is multiplied with, so that it stands in place of 1/√d_head.
pub(super) fn query_factors(tensor: String, held: FactorsHeld, d_head: usize) -> OutputFactors {
    let by = std::f64::consts::LOG2_E / (d_head as f64).sqrt();
    OutputFactors {
        rule: FactorRule::Softplus(by as f32),
        held,
        ..OutputFactors::stored(tensor)
    }
}

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let tensors = &checkpoint.tensors;
    ASIDE.iter().for_each(|key| {
        reader.value(key);
    });
    let n_layers = reader.layers("num_hidden_layers")?;
    let n_heads = reader.size("n_heads", "num_attention_heads")?;
    let d_model = reader.size("d_model", "hidden_size")?;
    let d_mlp = reader.size("d_mlp", "intermediate_size")?;
    let usual = Origin::Default("head_dim".to_owned());
    let d_head = reader.size_or("d_head", "head_dim", 80, usual)?;
    let eps = reader.number_or("norm_eps", "rms_norm_eps", 1e-6)?;
    let attention = AttentionSpec {
        scale: Scale::One,
        ..AttentionSpec::plain(n_heads, n_heads, d_head, true)
    };
    note_attention(reader, &attention, Origin::Family);
    reader.note(
        "query_factors",
        "the softplus of stored values, for each dimension of a head",
        Origin::Family,
    );
    given_rows::remark(
        reader,
        "the map of patches of a series, with positions and a frequency,",
    );
    let base = prefix(
        tensors,
        &["decoder.", "model.", ""],
        "layers.0.self_attn.scaling",
    );
    let inner = n_heads * d_head;
    let block = |layer_idx: usize| {
        let at = format!("{base}layers.{layer_idx}");
        let own =
            |name: &str, n_in, n_out| linear(&format!("{at}.self_attn.{name}"), n_in, n_out, true);
        let mut q = own("q_proj", d_model, inner);
        let scaling = format!("{at}.self_attn.scaling");
        q.factors = Some(query_factors(scaling, FactorsHeld::OfHead(n_heads), d_head));
        let projections = ProjectionSpec::plain(
            q,
            own("k_proj", d_model, inner),
            own("v_proj", d_model, inner),
            own("o_proj", inner, d_model),
        );
        let mlp = MlpSpec::plain(
            linear(&format!("{at}.mlp.gate_proj"), d_model, d_mlp, true),
            linear(&format!("{at}.mlp.down_proj"), d_mlp, d_model, true),
            Activation::Relu,
        );
        let before = format!("{at}.input_layernorm.weight");
        BlockSpec {
            attn_pre: Some(rms_norm(before, d_model, eps)),
            mlp_pre: Some(layer_norm(
                tensors,
                &format!("{at}.mlp.layer_norm"),
                d_model,
                EPS,
            )),
            ..BlockSpec::plain(
                attention.clone(),
                projections,
                FeedForward::Dense(Box::new(mlp)),
            )
        }
    };
    let first = format!("{base}layers.0.input_layernorm.weight");
    let blocks = (0..n_layers).map(block).collect();
    let first = (first, d_model);
    Ok(given_rows::model(FAMILY.model_type, first, blocks, None))
}
