//! Layers of `torch.nn` that a model keeps beside the stack that was made from them: `nn.TransformerEncoder` copies the layer that it is
//! given, and code that keeps that layer as an attribute saves it as well. Nothing runs it, so training leaves it as it was made.

use attnscope_checkpoint::Tensors;

use super::torch_parts::SELF_ATTENTION;

/// Parts of a layer that `torch.nn` begins with ones, and with zeros.
const ONES: [&str; 3] = ["norm1.weight", "norm2.weight", "norm3.weight"];
const ZEROS: [&str; 7] = [
    "norm1.bias",
    "norm2.bias",
    "norm3.bias",
    "self_attn.in_proj_bias",
    "self_attn.out_proj.bias",
    "multihead_attn.in_proj_bias",
    "multihead_attn.out_proj.bias",
];

/// Takes such layers away, and returns a remark on each.
pub fn forget(tensors: &mut Tensors) -> Vec<String> {
    let names: Vec<String> = tensors.iter().map(|(name, _)| name.to_owned()).collect();
    let starts = |before: &str| -> Vec<&String> {
        let own = names.iter().filter(|name| name.starts_with(before));
        own.collect()
    };
    let mut remarks = Vec::new();
    let probes = names
        .iter()
        .filter_map(|name| name.strip_suffix(SELF_ATTENTION));
    for before in probes {
        let Some(path) = before.strip_suffix('.') else {
            continue;
        };
        let is_numbered = path
            .bytes()
            .last()
            .is_some_and(|last| last.is_ascii_digit());
        let parts = starts(before);
        let is_copied = |stack: &str| {
            stack != before
                && starts(stack).len() == parts.len()
                && parts.iter().all(|name| {
                    let part = &name[before.len()..];
                    let shape = |name: &str| tensors.info(name).map(|info| &info.shape);
                    shape(&format!("{stack}{part}")) == shape(name)
                })
        };
        let mut stacks = names
            .iter()
            .filter_map(|name| name.strip_suffix(SELF_ATTENTION));
        let is_template = !is_numbered
            && stacks.any(|stack| stack.ends_with(".0.") && is_copied(stack))
            && is_untouched(tensors, before);
        if is_template {
            remarks.push(format!(
                "{path} is left aside: no training changed it, and the layers of a stack of torch.nn are copies of it"
            ));
            for name in &parts {
                tensors.forget(name);
            }
        }
    }
    remarks
}

/// Whether norms and biases of attention are as `torch.nn` makes them.
fn is_untouched(tensors: &Tensors, before: &str) -> bool {
    let all = |parts: &[&str], wanted: f32| {
        parts.iter().all(|part| {
            let Some(view) = tensors.get(&format!("{before}{part}")) else {
                return true;
            };
            view.widen()
                .is_ok_and(|values| values.iter().all(|value| *value == wanted))
        })
    };
    tensors.contains(&format!("{before}{}", ONES[0])) && all(&ONES, 1.0) && all(&ZEROS, 0.0)
}
