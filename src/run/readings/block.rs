//! What stands around attention and feed-forward layers.
//!
//! - **no residual**: what a branch writes takes the place of its input.
//! - **no pre-norm** at all, before attention alone or before feed-forward layers alone; **norms after the branches** instead of
//!   before them; **no final norm**.
//! - **gain + 1**: stored gains are read as what is added to 1, or the other way round.
//! - **embeddings tied or not**: the unembedding is the table of tokens, or a stored matrix that the configuration leaves out.
//! - **parallel branches** ↔ one after the other.
//!
//! Only what changes blocks is also tried in each layer alone. Large models that predict better than word frequencies are not read
//! with other blocks.

use std::sync::Arc;

use attnscope_forward::DroppedResiduals;
use attnscope_spec::{BlockSpec, LinearSource, ModelSpec, NormSource};

use super::{Family, IsLocal, Known, Reading};

pub(super) const FAMILY: Family = Family {
    id: "block",
    source: include_str!("block.rs"),
    readings,
};

fn readings(known: &Known<'_>) -> Vec<Reading> {
    let mut all = residuals(known);
    all.extend(norms(known));
    all.extend(unembeddings(known));
    all
}

fn residuals(known: &Known<'_>) -> Vec<Reading> {
    let is_sequential = known.blocks().all(|block| !block.is_parallel);
    let without = |before_attention, before_mlp| DroppedResiduals {
        before_attention,
        before_mlp,
    };
    let named = [
        ("no residual around attention", without(true, false)),
        (
            "no residual around feed-forward layers",
            without(false, true),
        ),
        ("no residuals", without(true, true)),
    ];
    let is_possible = |dropped: &DroppedResiduals| is_sequential || !dropped.before_attention;
    named
        .into_iter()
        .filter(|(_, dropped)| is_possible(dropped))
        .map(|(name, dropped)| Reading {
            dropped,
            shares_weights: false,
            spec: Some(Arc::new(known.spec().clone())),
            is_local: IsLocal::InLayers,
            ..Reading::new(FAMILY.id, name, "")
        })
        .collect()
}

fn norms(known: &Known<'_>) -> Vec<Reading> {
    let with = |name: &str, change: &dyn Fn(&mut ModelSpec)| {
        let mut spec = known.spec().clone();
        change(&mut spec);
        (spec != *known.spec())
            .then(|| Reading::new(FAMILY.id, name, "").with_weights(Arc::new(spec)))
    };
    let blocks = |change: fn(&mut BlockSpec)| {
        move |spec: &mut ModelSpec| {
            spec.stacks
                .iter_mut()
                .for_each(|stack| stack.blocks_mut().iter_mut().for_each(change));
        }
    };
    let none = blocks(|block| (block.attn_pre, block.mlp_pre) = (None, None));
    let none_before_attention = blocks(|block| {
        if block.mlp_pre.is_some() {
            block.attn_pre = None;
        }
    });
    let none_before_mlp = blocks(|block| {
        if block.attn_pre.is_some() {
            block.mlp_pre = None;
        }
    });
    let after = blocks(|block| {
        let is_free = block.attn_post.is_none() && block.mlp_post.is_none() && !block.is_parallel;
        if is_free && block.attn_pre.is_some() {
            (block.attn_post, block.mlp_post) = (block.attn_pre.take(), block.mlp_pre.take());
        }
    });
    let before = blocks(|block| {
        let is_free = block.attn_pre.is_none() && block.mlp_pre.is_none() && !block.is_parallel;
        if is_free && block.attn_post.is_some() {
            (block.attn_pre, block.mlp_pre) = (block.attn_post.take(), block.mlp_post.take());
        }
    });
    let parallel = blocks(|block| {
        if block.cross.is_none() && block.mlp_pre.is_some() {
            block.is_parallel = !block.is_parallel;
        }
    });
    let of_blocks = [
        with("no norms before attention and feed-forward layers", &none),
        with("no norm before attention", &none_before_attention),
        with("no norm before feed-forward layers", &none_before_mlp),
        with("norms after attention and feed-forward layers", &after),
        with("norms before attention and feed-forward layers", &before),
        with(
            "the other order of branches (parallel or one after the other)",
            &parallel,
        ),
        gains(known).and_then(|name| with(&name, &flip_gains)),
    ];
    let of_blocks = of_blocks.into_iter().flatten();
    let last = with("no final norm", &|spec| {
        spec.stacks
            .iter_mut()
            .for_each(|stack| stack.final_norm = None);
    });
    of_blocks
        .map(|reading| reading.local(IsLocal::InLayers))
        .chain(last)
        .collect()
}

/// The reading of gains that is not declared, in words; `None` if the first block has no norm with a gain.
fn gains(known: &Known<'_>) -> Option<String> {
    let first = known.blocks().next()?;
    let norms = [
        &first.attn_pre,
        &first.attn_out,
        &first.attn_post,
        &first.mlp_pre,
    ];
    let mut with_gain = norms.into_iter().flatten();
    let norm = with_gain.find(|norm| !norm.gain.is_empty())?;
    Some(if norm.adds_one {
        "gains of norms used as they are stored (g, not 1 + g)".to_owned()
    } else {
        "1 added to the stored gains of norms (1 + g, not g)".to_owned()
    })
}

fn flip_gains(spec: &mut ModelSpec) {
    let flip = |norm: &mut Option<NormSource>| {
        if let Some(norm) = norm.as_mut().filter(|norm| !norm.gain.is_empty()) {
            norm.adds_one = !norm.adds_one;
        }
    };
    for stack in &mut spec.stacks {
        flip(&mut stack.final_norm);
        for block in stack.blocks_mut() {
            flip(&mut block.attn_pre);
            flip(&mut block.attn_out);
            flip(&mut block.attn_post);
            flip(&mut block.mlp_pre);
            flip(&mut block.mlp_out);
            flip(&mut block.mlp_post);
        }
    }
}

fn unembeddings(known: &Known<'_>) -> Option<Reading> {
    let spec = known.spec();
    let head = spec.head.as_ref()?;
    let table = &spec.main_stack().embed.tokens;
    let shape = [head.unembed.n_out(), head.unembed.n_in];
    let with = |name: &str, tensor: &str| {
        let mut spec = spec.clone();
        let head = spec.head.as_mut()?;
        let bias = head.unembed.bias.clone();
        head.unembed = LinearSource::whole(tensor.to_owned(), bias, shape[1], shape[0]);
        Some(Reading::new(FAMILY.id, name, "").with_weights(Arc::new(spec)))
    };
    if head.unembed.weight != table.tensor {
        let fits = [table.n_rows, table.width] == shape && !head.unembed.is_input_major;
        let name = "the unembedding tied to the embeddings";
        return if fits {
            with(name, &table.tensor)
        } else {
            None
        };
    }
    let tensors = &known.model.checkpoint.tensors;
    let mut unread = known.model.spec.unused_tensors(tensors).into_iter();
    let stored = unread.find(|name| tensors.expect(name, &shape).is_ok())?;
    with(&format!("an unembedding of its own ({stored})"), stored)
}
