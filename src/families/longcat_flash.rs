//! LongCat-Flash: each stored layer is two blocks with latent attention; its experts, some of which only return their input, run beside
//! the second block.

use attnscope_checkpoint::{Checkpoint, Reader};
use attnscope_compute::error::{Error, Result};
use attnscope_spec::ModelSpec;

use super::Family;
use super::reading::bias_rule::BiasRule;
use super::reading::expected::{Expected, check};
use super::reading::experts::ExpertsKeys;
use super::reading::latent::{self, LatentLike};

/// transformers also saves maps of experts that return their input, which nothing reads.
pub const FAMILY: Family = Family::own("longcat_flash", "LongcatFlash", read)
    .leaving_unread(&[".mlp.experts.*", "model.mtp.*"]);

const LIKE: LatentLike = LatentLike {
    experts: ExpertsKeys {
        router: "router.classifier",
        n_experts: ["n_routed_experts", "num_local_experts"],
        identities: Some(("zero_expert_num", 256)),
        choice_bias: Some(("router.e_score_correction_bias", false)),
        normalises: BiasRule::Never,
        scale: Some(("routed_scaling_factor", 6.0)),
        ..ExpertsKeys::PLAIN
    },
    eps: 1e-5,
    theta: 1e7,
    paired: Some("num_layers"),
    ..LatentLike::PLAIN
};

fn read(checkpoint: &Checkpoint, reader: &mut Reader<'_>) -> Result<ModelSpec> {
    check(
        reader,
        &[
            ("mla_scale_q_lora", Expected::Flag(true)),
            ("mla_scale_kv_lora", Expected::Flag(true)),
            ("norm_topk_prob", Expected::Flag(false)),
            ("router_bias", Expected::Flag(false)),
            ("attention_method", Expected::Word("MLA")),
            ("zero_expert_type", Expected::Word("identity")),
        ],
    )?;
    let of_head = ["qk_nope_head_dim", "qk_rope_head_dim"].map(|key| {
        reader
            .value(key)
            .and_then(|width| width.as_u64())
            .unwrap_or(0)
    });
    let d_head = of_head.iter().sum::<u64>();
    if let Some(other) = reader
        .value("qk_head_dim")
        .filter(|other| other.as_u64() != Some(d_head))
    {
        let problem = format!(
            "expected {d_head}, the sum of qk_nope_head_dim and qk_rope_head_dim, found {other}"
        );
        return Err(Error::config(reader.path(), "qk_head_dim", problem));
    }
    latent::read(FAMILY.model_type, checkpoint, reader, LIKE)
}
