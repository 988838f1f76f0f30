//! Switch Transformers: T5 with experts in some layers, one of which each token uses while it has room.

use attnscope_checkpoint::{Checkpoint, Origin, Reader};
use attnscope_compute::error::{Error, Result};
use attnscope_spec::{
    ExpertsSpec, FeedForward, MlpSpec, ModelSpec, RouterRule, RouterScores, Stack,
};

use super::Family;
use super::reading::{check_counts, linear};
use super::t5::{self, T5Like};

pub const FAMILY: Family = Family::own("switch_transformers", "SwitchTransformers", read)
    // Unused where encoder and decoder have their own.
    .leaving_unread(&["shared.weight"]);

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    let like = T5Like {
        family: FAMILY.model_type,
        feed_forward: ("dense_act_fn", "relu"),
        mlp: "mlp",
        ties_words: false,
        ..T5Like::PLAIN
    };
    let mut spec = t5::read_as(checkpoint, reader, like)?;
    const N: &str = "num_experts";
    let n = reader.size_or("n_experts", N, 8, Origin::Default(N.to_owned()))?;
    check_counts(
        reader,
        &checkpoint.tensors,
        spec.n_layers_to_run(),
        (n, false),
    )?;
    let rule = rule(reader)?;
    let has_bias = reader.flag_or("router_bias", "router_bias", false)?;
    let n_sparse = [
        reader.count_or("expert layers", "num_sparse_encoder_layers", 3)?,
        reader.count_or("decoder expert layers", "num_sparse_decoder_layers", 3)?,
    ];
    // Follow from the numbers of layers with experts, which transformers goes by.
    for key in ["encoder_sparse_step", "decoder_sparse_step"] {
        reader.value(key);
    }
    for stack in &mut spec.stacks {
        let n_layers = stack.n_layers();
        let n_sparse = n_sparse[usize::from(stack.stack == Stack::Decoder)];
        let every = match n_sparse {
            0 => n_layers,
            n => n_layers / n,
        };
        let is_sparse = |idx: usize| every == 1 || every > 1 && idx % every == 1;
        let blocks = stack.blocks_mut().iter_mut().enumerate();
        for (_, block) in blocks.filter(|(idx, _)| is_sparse(*idx)) {
            let FeedForward::Dense(dense) = &block.feed_forward else {
                continue;
            };
            let at = dense.up.weight.trim_end_matches(".wi.weight");
            let experts = (0..n).map(|idx| expert(dense, &format!("{at}.experts.expert_{idx}")));
            let router = format!("{at}.router.classifier");
            block.feed_forward = FeedForward::Experts(Box::new(ExpertsSpec {
                router: linear(&router, dense.up.n_in, n, has_bias),
                rule: rule.clone(),
                experts: experts.collect(),
                shared: None,
                latent: None,
                norms: None,
                apart: None,
            }));
        }
    }
    Ok(spec)
}

/// An expert with the shape of a dense feed-forward block.
fn expert(dense: &MlpSpec, at: &str) -> MlpSpec {
    let (d_model, d_mlp) = (dense.up.n_in, dense.up.n_out());
    MlpSpec::plain(
        linear(&format!("{at}.wi"), d_model, d_mlp, false),
        linear(&format!("{at}.wo"), d_mlp, d_model, false),
        dense.activation,
    )
}

/// How tokens are routed to experts.
fn rule(reader: &mut Reader<'_>) -> Result<RouterRule> {
    const DTYPE: &str = "router_dtype";
    const ROOM: &str = "expert_capacity";
    let dtype = reader.word_or(DTYPE, DTYPE, "float32")?;
    if dtype != "float32" {
        let problem = format!(
            "expected \"float32\", found {dtype:?}: other types round the input of the router"
        );
        return Err(Error::config(reader.path(), DTYPE, problem));
    }
    for key in ["add_router_probs", "router_ignore_padding_tokens"] {
        reader.value(key);
    }
    let room = reader.size_or(ROOM, ROOM, 64, Origin::Default(ROOM.to_owned()))?;
    Ok(RouterRule {
        capacity: Some(room),
        ..RouterRule::plain(1, RouterScores::Softmax)
    })
}
