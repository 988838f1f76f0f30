//! In which order the matrices of latent attention (MLA) hold their parts.
//!
//! - **keys and values apart**: `kv_b_proj` has the keys of all heads, then the values of all heads, in place of one head after
//!   another; **values first**: the values of each head before its keys.
//! - **rotary part first**: in the queries of each head, or before the latents of `kv_a_proj_with_mqa`.

use attnscope_forward::{Deviation, RotationOverride};
use attnscope_spec::{BlockSpec, LinearSource, Part};

use super::{Family, IsLocal, Known, Reading};

pub(super) const FAMILY: Family = Family {
    id: "latent",
    source: include_str!("latent.rs"),
    readings,
};

fn readings(known: &Known<'_>) -> Vec<Reading> {
    let with = |name: &str, change: &dyn Fn(&mut BlockSpec)| {
        let spec = known.with_blocks(change)?;
        Some(Reading::new(FAMILY.id, name, "").with_weights(spec))
    };
    let mut all = Vec::new();
    all.extend(with(
        "the keys of all heads before the values of all heads in kv_b_proj",
        &apart,
    ));
    all.extend(with(
        "the values of each head before its keys in kv_b_proj",
        &values_first,
    ));
    all.extend(with(
        "the rotary part of keys before the latents in kv_a_proj_with_mqa",
        &shared_key_first,
    ));
    let turns_last = |block: &BlockSpec| {
        block.own().is_some_and(|own| {
            let rope = own.attention.rope.as_ref();
            let is_last = rope.is_some_and(|rope| {
                rope.first > 0 && rope.first + rope.d_rotary == own.attention.d_head
            });
            is_last && own.projections.latent.is_some()
        })
    };
    if known.blocks().any(turns_last) {
        let deviation = Deviation {
            turned: RotationOverride::QueriesRotaryFirst,
            ..Deviation::NONE
        };
        let name = "the rotary part of queries before their other part";
        all.push(Reading::new(FAMILY.id, name, "").deviating(deviation));
    }
    let local = |reading: Reading| reading.local(IsLocal::InLayers);
    all.into_iter().map(local).collect()
}

/// Two maps that take their outputs from one stored tensor, group by group.
fn of_one_tensor<'a>(
    first: &'a mut LinearSource,
    second: &'a mut LinearSource,
) -> Option<[&'a mut LinearSource; 2]> {
    let is_one = first.weight == second.weight && first.part.group == second.part.group;
    let is_whole = first.part.len + second.part.len == first.part.group;
    (is_one && is_whole).then_some([first, second])
}

/// Keys and values of a block's latent attention, if one tensor has both.
fn keys_and_values(block: &mut BlockSpec) -> Option<[&mut LinearSource; 2]> {
    let projections = &mut block.own_mut()?.projections;
    projections.latent.as_ref()?;
    of_one_tensor(&mut projections.k, &mut projections.v)
}

fn apart(block: &mut BlockSpec) {
    let Some([k, v]) = keys_and_values(block) else {
        return;
    };
    let (group, n_heads) = (k.n_stored_out, k.n_stored_out / k.part.group.max(1));
    let widths = [k.part.len, v.part.len].map(|len| n_heads * len);
    for (source, (offset, len)) in [(k, (0, widths[0])), (v, (widths[0], widths[1]))] {
        source.part = Part { group, offset, len };
    }
}

fn values_first(block: &mut BlockSpec) {
    if let Some([k, v]) = keys_and_values(block) {
        exchange(k, v);
    }
}

fn shared_key_first(block: &mut BlockSpec) {
    let latent = block
        .own_mut()
        .and_then(|own| own.projections.latent.as_deref_mut());
    let Some(latent) = latent else { return };
    if let Some(shared) = &mut latent.shared_key
        && let Some([kv, shared]) = of_one_tensor(&mut latent.kv, shared)
    {
        exchange(kv, shared);
    }
}

/// Puts the second part of each group before the first.
fn exchange(first: &mut LinearSource, second: &mut LinearSource) {
    second.part.offset = 0;
    first.part.offset = second.part.len;
}
