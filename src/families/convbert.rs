//! ConvBERT: ELECTRA half of whose heads are convolutions with kernels of their own.

use attnscope_checkpoint::{Checkpoint, Origin, Reader};
use attnscope_compute::attention::AttentionSpec;
use attnscope_compute::error::{Error, Result};
use attnscope_spec::mixers::SpanConvolutionSpec;
use attnscope_spec::{ModelSpec, TokenMixer};

use super::reading::bert_like::{self, BertLike};
use super::reading::task_rules::{HeadActivation, TaskRules};
use super::reading::{linear, note_attention};
use super::{Family, electra};

pub const FAMILY: Family = Family::own("convbert", "ConvBert", read).with_tasks(TaskRules {
    dense: HeadActivation::Key("hidden_act", "gelu"),
    summary: Some("gelu"),
    ..TaskRules::USUAL
});

const LIKE: BertLike = BertLike {
    widens: Some(electra::WIDENS),
    may_decode: false,
    ..BertLike::plain("convbert.", electra::HEAD)
};

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let mut spec = bert_like::read(FAMILY.model_type, checkpoint, reader, LIKE)?;
    let (d_model, sizes) = (spec.d_model, sizes(reader, &spec)?);
    let half = sizes.n_heads * sizes.d_head;
    let attention = AttentionSpec::plain(sizes.n_heads, sizes.n_heads, sizes.d_head, false);
    reader.forget(&[
        "n_heads",
        "d_head",
        "scale",
        "scale_factor",
        "softmax_axis",
        "mask",
    ]);
    let origin = Origin::Derived("num_attention_heads / head_ratio".to_owned());
    reader.note("n_heads", sizes.n_heads, origin);
    let origin = Origin::Derived("half of d_model / n_heads".to_owned());
    reader.note("d_head", sizes.d_head, origin);
    note_attention(reader, &attention, Origin::Family);
    for block in spec.stacks[0].blocks_mut() {
        let Some(own) = block.own_mut() else { continue };
        own.attention = attention.clone();
        let maps = &mut own.projections;
        for map in [&mut maps.q, &mut maps.k, &mut maps.v] {
            *map = linear(map.weight.trim_end_matches(".weight"), d_model, half, true);
        }
        let whole = maps.o.clone();
        maps.o = whole.clone().of_inputs(0, half);
        let at = maps.q.weight.trim_end_matches("query.weight");
        let map = |name: &str, n_in, n_out| linear(&format!("{at}{name}"), n_in, n_out, true);
        let mut o = whole.of_inputs(half, half);
        // The bias is added once, with the heads.
        o.bias = None;
        let pointwise = linear(
            &format!("{at}key_conv_attn_layer.pointwise"),
            d_model,
            half,
            false,
        );
        let mixer = SpanConvolutionSpec {
            n_heads: sizes.n_heads,
            n_wide: sizes.n_wide,
            q: maps.q.clone(),
            depthwise: format!("{at}key_conv_attn_layer.depthwise.weight"),
            pointwise: pointwise.in_groups(1),
            span_bias: format!("{at}key_conv_attn_layer.bias"),
            kernel: map("conv_kernel_layer", half, sizes.n_heads * sizes.n_wide),
            values: map("conv_out_layer", d_model, half),
            o,
        };
        block.parallel_mixer = Some(Box::new(TokenMixer::SpanConvolution(Box::new(mixer))));
    }
    Ok(spec)
}

struct Sizes {
    n_heads: usize,
    d_head: usize,
    /// Number of tokens that a kernel covers.
    n_wide: usize,
}

fn sizes(reader: &mut Reader<'_>, spec: &ModelSpec) -> Result<Sizes> {
    let default = |key: &str| Origin::Default(key.to_owned());
    let (ratio, wide, groups) = ("head_ratio", "conv_kernel_size", "num_groups");
    let stated = spec
        .main_stack()
        .first_attention()
        .map_or(1, |own| own.n_heads);
    let n_heads = (stated / reader.size_or("head_ratio", ratio, 2, default(ratio))?).max(1);
    let n_wide = reader.size_or("kernel", wide, 9, default(wide))?;
    if !spec.d_model.is_multiple_of(2 * n_heads) {
        let problem = format!(
            "expected a width that twice {n_heads} heads divide, found {}",
            spec.d_model
        );
        return Err(Error::config(reader.path(), "hidden_size", problem));
    }
    if n_wide.is_multiple_of(2) || n_wide > 1 << 10 {
        let problem = format!("expected an odd number up to 1023, found {n_wide}");
        return Err(Error::config(reader.path(), wide, problem));
    }
    let n_groups = reader.size_or("mlp_groups", groups, 1, default(groups))?;
    if n_groups != 1 {
        let problem =
            format!("expected 1: feed-forward maps in groups are not read, found {n_groups}");
        return Err(Error::config(reader.path(), groups, problem));
    }
    Ok(Sizes {
        n_heads,
        d_head: spec.d_model / n_heads / 2,
        n_wide,
    })
}
