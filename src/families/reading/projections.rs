//! Projections of two-tower models: a tower's output for a picture or a caption becomes one vector of the shared width.

use attnscope_checkpoint::{Origin, Reader, Tensors};
use attnscope_spec::{
    FeedForward, HeadSpec, LabelKind, Labels, LinearSource, ModelSpec, Pooled, PoolingSpec,
};
use serde_json::Value;

use super::task_rules::{Projection, TaskRules};
use super::{layer_norm, linear, stacked};

/// The default token that ends captions, and the number that old configurations give, which is not such a token.
const END: u64 = 49_407;

const WRONG_END: u64 = 2;

/// Prefixes of the classes whose towers are projected.
const BOTH: [&str; 3] = ["CLIPModel", "Siglip2Model", "SiglipModel"];

/// Adds the projection to a tower, if its class has one.
pub(super) fn settle(
    tensors: &Tensors,
    reader: &mut Reader<'_>,
    spec: &mut ModelSpec,
    (class, rules): (&str, &TaskRules),
) -> bool {
    if !BOTH.contains(&class) && !class.ends_with("WithProjection") {
        return false;
    }
    let Some(projection) = rules.projection else {
        return false;
    };
    let base = base_of(spec);
    let (weight, pooled, norm) = match projection {
        Projection::First { map, norm } => {
            let norm = Some(format!("{base}{norm}"));
            (map.to_owned(), Pooled::First, norm)
        }
        Projection::End { map } => {
            let end = reader.value("eos_token_id").and_then(Value::as_u64);
            let pooled = match end.unwrap_or(END) {
                WRONG_END => Pooled::Highest,
                end => Pooled::FirstOf(u32::try_from(end).unwrap_or(u32::MAX)),
            };
            (map.to_owned(), pooled, None)
        }
        Projection::Last { map } => (format!("{base}{map}"), Pooled::Last(None), None),
        Projection::ByAttention { at } => {
            let at = format!("{base}{at}");
            return add_attention_pooling(tensors, reader, spec, (class, &at));
        }
    };
    let Some(&[n_out, n_in]) = tensors
        .info(&format!("{weight}.weight"))
        .map(|info| info.shape.as_slice())
    else {
        return false;
    };
    reader.value("projection_dim");
    reader.value("projection_size");
    if let Some(name) = norm {
        let eps = spec
            .main_stack()
            .blocks()
            .first()
            .and_then(|block| block.attn_pre.as_ref());
        let eps = f64::from(eps.map_or(1e-5, |norm| norm.eps));
        let d_model = spec.d_model;
        spec.stacks[0].final_norm = Some(layer_norm(tensors, &name, d_model, eps));
    }
    let bias = Some(format!("{weight}.bias")).filter(|bias| tensors.contains(bias));
    let unembed = LinearSource::whole(format!("{weight}.weight"), bias, n_in, n_out);
    give(reader, spec, class, pooled, unembed);
    true
}

/// Makes a map the head of a model.
fn give(
    reader: &mut Reader<'_>,
    spec: &mut ModelSpec,
    class: &str,
    pooled: Pooled,
    unembed: LinearSource,
) {
    let n_out = unembed.n_out();
    let said = format!("{n_out} values of the {}", pooled.word());
    reader.forget(&["head", "unembedding", "tied_unembedding"]);
    reader.note("head", said, Origin::Derived(format!("class {class}")));
    spec.head = Some(HeadSpec {
        labels: Some(Box::new(Labels {
            names: (0..n_out).map(|idx| format!("value {idx}")).collect(),
            kind: LabelKind::Value,
            pooled,
        })),
        ..HeadSpec::plain(unembed)
    });
    spec.is_causal_lm = false;
}

/// Adds the pooling head for pictures under a prefix: a learned query that attends to all patches.
fn add_attention_pooling(
    tensors: &Tensors,
    reader: &mut Reader<'_>,
    spec: &mut ModelSpec,
    (class, at): (&str, &str),
) -> bool {
    let d_model = spec.d_model;
    let first = spec.main_stack().blocks().first();
    let (Some(norm), Some(attention), Some(FeedForward::Dense(mlp))) = (
        first.and_then(|block| block.attn_pre.as_ref()),
        spec.main_stack().first_attention(),
        first.map(|block| &block.feed_forward),
    ) else {
        return false;
    };
    let query = format!("{at}.probe");
    let Some(query_shape) = tensors.info(&query).map(|info| info.shape.clone()) else {
        return false;
    };
    let (eps, n_heads, activation) = (f64::from(norm.eps), attention.n_heads, mlp.activation);
    let d_mlp = mlp.up.n_out();
    let (weight, bias) = (
        format!("{at}.attention.in_proj_weight"),
        format!("{at}.attention.in_proj_bias"),
    );
    let fused = LinearSource::whole(weight, Some(bias), d_model, 3 * d_model);
    let [q, k, v] = stacked(&fused, [d_model; 3]);
    let map = |name: &str, n_in, n_out| linear(&format!("{at}.{name}"), n_in, n_out, true);
    let pooling = PoolingSpec {
        query,
        query_shape,
        n_heads,
        q,
        k,
        v,
        o: map("attention.out_proj", d_model, d_model),
        norm: layer_norm(tensors, &format!("{at}.layernorm"), d_model, eps),
        up: map("mlp.fc1", d_model, d_mlp),
        activation,
    };
    let unembed = map("mlp.fc2", d_mlp, d_model);
    give(reader, spec, class, Pooled::ByAttention, unembed);
    if let Some(head) = &mut spec.head {
        head.pooling = Some(Box::new(pooling));
    }
    true
}

/// The prefix of a tower's tensor names.
fn base_of(spec: &ModelSpec) -> &str {
    let table = spec.stacks[0].embed.tokens.tensor.as_str();
    table.split_once("embeddings.").map_or("", |(base, _)| base)
}
