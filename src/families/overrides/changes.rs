//! Applies a setting to every attention of a spec and counts the changes.

use attnscope_compute::attention::{AttentionSpec, Bias, Mask};
use attnscope_prompt::PositionRule;
use attnscope_spec::recurrent::Recurrence;
use attnscope_spec::{ModelSpec, StackSpec};

use super::given::Given;

/// Changes every attention that the setting applies to; returns how many there are.
pub(super) fn change(spec: &mut ModelSpec, given: &Given) -> usize {
    let mut n_changed = 0;
    if let (Some(head), Given::LogitScale(_) | Given::LogitSoftcap(_)) = (&mut spec.head, given) {
        match given {
            Given::LogitScale(scale) => head.scale = *scale,
            Given::LogitSoftcap(cap) => head.softcap = *cap,
            _ => {}
        }
        return 1;
    }
    if *given == Given::NoPositions {
        for stack in &mut spec.stacks {
            (stack.embed.positions, stack.bucket_values) = (None, None);
        }
        spec.positions = PositionRule::Index;
    }
    if let Given::WindowLayers(step, first) = given {
        for stack in &mut spec.stacks {
            let blocks = stack.blocks_mut().iter_mut().enumerate();
            for (_, block) in blocks.filter(|(idx, _)| idx % step != *first) {
                if let Some(own) = block.own_mut() {
                    own.attention.mask.window = None;
                    n_changed += 1;
                }
            }
        }
        return n_changed;
    }
    for block in spec.stacks.iter_mut().flat_map(StackSpec::blocks_mut) {
        if let Some(own) = block.own_mut() {
            n_changed += usize::from(change_one(&mut own.attention, given));
        }
        if let Some(cross) = &mut block.cross
            && !matches!(given, Given::Causal(_) | Given::Window(_))
        {
            change_one(&mut cross.attention, given);
        }
    }
    for recurrence in spec.stacks.iter_mut().filter_map(StackSpec::recurrence_mut) {
        if let Recurrence::Writer(writer) = recurrence
            && !matches!(given, Given::Causal(_) | Given::Window(_))
        {
            n_changed += usize::from(change_one(&mut writer.attention, given));
        }
    }
    n_changed
}

fn change_one(attention: &mut AttentionSpec, given: &Given) -> bool {
    match given {
        Given::Config(_) => {}
        Given::Scale(scale) => attention.scale = *scale,
        Given::SoftmaxAxis(axis) => attention.softmax_axis = *axis,
        Given::Softcap(cap) => attention.softcap = *cap,
        Given::Causal(causal) => {
            let window = attention.mask.window;
            attention.mask = Mask {
                causal: *causal,
                window: window.map(|window| window.turned(*causal)),
                streaming: None,
                pools: None,
            };
        }
        Given::Window(width) => attention.mask = Mask::with_width(attention.mask.causal, *width),
        Given::NoPositions => (attention.rope, attention.bias) = (None, Bias::None),
        Given::LogitScale(_) | Given::LogitSoftcap(_) | Given::WindowLayers(..) => return false,
        Given::WindowRopeTheta(theta) => {
            let has_window = attention.mask.window.is_some();
            match attention.rope.as_mut().filter(|_| has_window) {
                Some(rope) => rope.theta = *theta,
                None => return false,
            }
        }
        Given::RopeTheta(_) | Given::RopeInterleaved(_) | Given::RopeDirection(_) => {
            let Some(rope) = &mut attention.rope else {
                return false;
            };
            match given {
                Given::RopeTheta(theta) => rope.theta = *theta,
                Given::RopeInterleaved(interleaved) => rope.interleaved = *interleaved,
                Given::RopeDirection(direction) => rope.direction = *direction,
                _ => {}
            }
        }
    }
    true
}
