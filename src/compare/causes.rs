//! Finds the knobs and tensors that explain the first difference between two runs.

use attnscope_forward::Hook;
use attnscope_spec::Stack;

use super::comparison::Comparison;
use super::knob::KnobKind;
use super::knobs::KnobDifference;
use super::roles::{is_bias_table, layer_of};
use super::suspects::layer_name;
use super::tensor_difference::TensorDifference;

/// A difference between two sides that acts on the first differing hook.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Cause<'a> {
    Knob(&'a KnobDifference),
    Tensor(&'a TensorDifference),
    /// A tensor that only one side has.
    Missing(&'a str),
}

/// Returns the first hook that a knob acts on.
fn hook_of_knob(name: &str) -> Hook {
    match name {
        "positions" | "position_table" | "projects_first" | "token_types" | "constant_rows"
        | "made_row_parts" | "stem" => Hook::ResidPre,
        name if name.starts_with("embed_") => Hook::ResidPre,
        name if name.starts_with("rope_") => Hook::RotQ,
        "scale" | "mask" | "window" | "softcap" | "row_without_keys" => Hook::Scores,
        "key_grid" => Hook::K,
        name if name.starts_with("bias") => Hook::Scores,
        "softmax_axis" | "sinks" | "heads_that_differ" => Hook::Pattern,
        "first_rows" => Hook::Z,
        "branch_scale" | "second_output_map" => Hook::AttnOut,
        "mlp_resid_factor" | "moment_rows" => Hook::ResidPost,
        "attn_resid_factor" | "mlp_branch_scale" | "identity_experts" | "shortcut" => Hook::MlpOut,
        "activation" | "mlp_convolution" | "gate_limit" | "gate_alpha" | "parallel"
        | "adds_to_normed" => Hook::MlpOut,
        name if name.starts_with("router_") || name == "n_experts_used" => Hook::MlpOut,
        name if name.starts_with("logit_") || name.starts_with("head_") => Hook::Logits,
        _ => Hook::Q,
    }
}

/// Returns the first hook that a norm acts on, by the norm's name.
fn hook_of_norm(name: &str) -> Option<Hook> {
    Some(match name {
        "embed_norm" | "embed.norm" => Hook::ResidPre,
        "attn_pre_norm" | "attn_pre" | "q_norm" | "latent_norm" => Hook::Q,
        "k_norm" => Hook::K,
        "attn_out_norm" | "attn_out" | "z_norm" => Hook::AttnOut,
        "attn_post_norm" | "attn_post" | "mlp_pre_norm" | "mlp_pre" | "mlp_out_norm"
        | "mlp_out" | "hidden_norm" | "out_activation" => Hook::MlpOut,
        "mlp_post_norm" | "mlp_post" => Hook::ResidPost,
        "final_norm" | "head_norm" | "head.norm" => Hook::Logits,
        _ => return None,
    })
}

/// Returns the first hook that a role acts on.
fn hook_of_role(role: &str) -> Hook {
    let layer = layer_of(role);
    let rest = role[layer.len()..].trim_start_matches('.');
    let name = rest
        .trim_end_matches(".bias")
        .trim_end_matches(".gain")
        .trim_end_matches(".weight");
    if layer.is_empty() {
        return if rest.contains("embed.") {
            Hook::ResidPre
        } else if rest == "bias"
            || rest.ends_with(".bias") && !rest.contains("head") && !rest.contains("norm")
        {
            Hook::Scores
        } else {
            Hook::Logits
        };
    }
    match name {
        "attn.k" | "attn.k_norm" | "attn.shared_key" => Hook::K,
        name if name.starts_with("attn.reduced") => Hook::K,
        "attn.pooled_residual" => Hook::MlpOut,
        "attn.v" => Hook::V,
        "attn.o" => Hook::AttnOut,
        "attn.sinks" => Hook::Pattern,
        name if name.starts_with("attn.") => Hook::Q,
        name => hook_of_norm(name).unwrap_or(Hook::MlpOut),
    }
}

/// Returns the knobs and tensors that act on the first differing hook at its layer, or else on earlier hooks of that layer.
pub(super) fn causes(of: &Comparison) -> Vec<Cause<'_>> {
    let Some(first) = of.first() else {
        return Vec::new();
    };
    let at = first.hook;
    let layer = match (first.stack, first.layer_idx) {
        (Some(stack), Some(layer_idx)) => layer_name(stack, layer_idx),
        _ => String::new(),
    };
    let is_layer = |slot: &str| slot == layer;
    let is_first_layer = first.layer_idx == Some(0) && first.stack != Some(Stack::Cross);
    // Parts before the first layer show in that layer's input, and norms before a hook show in that hook.
    let mut found: Vec<(usize, Cause<'_>)> = Vec::new();
    let mut note = |hook: Hook, cause| {
        if hook == at {
            found.push((0, cause));
        } else if hook < at {
            found.push((1, cause));
        }
    };
    for knob in of.knobs.iter().filter(|k| k.kind == KnobKind::Computation) {
        let (name, slots) = knob.knob.split_once('@').unwrap_or((&knob.knob, ""));
        if slots.is_empty() {
            let hook = match (name, at) {
                // All norms share this knob, and an order of heads is found where it shows: at whichever hook differs first.
                ("norm_eps" | "norm_gain" | "head_order" | "kv_head_order", at) => at,
                ("norm_placement", at) if !layer.is_empty() && at >= Hook::Q => at,
                _ => hook_of_norm(name).unwrap_or_else(|| hook_of_knob(name)),
            };
            note(hook, Cause::Knob(knob));
            continue;
        }
        for slot in slots.split(',') {
            let (place, norm) = slot.split_once(' ').unwrap_or((slot, slot));
            let hook = match hook_of_norm(norm).or_else(|| hook_of_norm(name)) {
                Some(hook) => hook,
                None if name == "norm_placement" => at.max(Hook::Q),
                None => hook_of_knob(name),
            };
            let is_here = is_layer(place)
                || (hook_of_norm(norm).is_some() && layer_of(place).is_empty())
                || (layer_of(place).is_empty() && !place.contains('L'));
            if is_here {
                note(hook, Cause::Knob(knob));
                break;
            }
        }
    }
    for tensor in &of.weights.differ {
        let here = tensor.roles.iter().filter(|role| {
            let of_role = layer_of(role);
            is_layer(&of_role)
                || (of_role.is_empty() && (is_first_layer || layer.is_empty()))
                || is_bias_table(role)
        });
        if let Some(hook) = here.map(|role| hook_of_role(role)).min() {
            note(hook, Cause::Tensor(tensor));
        }
    }
    for (name, role) in &of.weights.missing_roles {
        if is_layer(&layer_of(role)) || layer_of(role).is_empty() {
            note(hook_of_role(role), Cause::Missing(name));
        }
    }
    found.sort_by_key(|(rank, _)| *rank);
    let least = found.first().map_or(0, |(rank, _)| *rank);
    let best = found.into_iter().filter(|(rank, _)| *rank == least);
    best.map(|(_, cause)| cause).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_role_is_assigned_the_first_hook_that_reads_it() {
        for (role, hook) in [
            ("embed.tokens", Hook::ResidPre),
            ("L0.attn_pre.gain", Hook::Q),
            ("L3.attn.q.bias", Hook::Q),
            ("L3.attn.k", Hook::K),
            ("cross.L3.attn.v", Hook::V),
            ("encoder.L1.attn.o.bias", Hook::AttnOut),
            ("L1.mlp_pre.bias", Hook::MlpOut),
            ("L1.expert.3.gate", Hook::MlpOut),
            ("decoder.bias", Hook::Scores),
            ("final_norm.gain", Hook::Logits),
            ("head.unembed", Hook::Logits),
        ] {
            assert_eq!(hook_of_role(role), hook, "{role}");
        }
    }
}
