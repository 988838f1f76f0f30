//! The pipeline: runs a prompt through the model layer by layer, and computes the statistics of each layer as it finishes.

mod ahead;
pub mod align;
mod boundaries;
mod budget;
pub mod captured;
mod crossings;
mod edited;
mod encoded;
mod first_nonfinite;
mod head;
mod histogram;
mod job;
mod judge;
mod kept;
mod label_scan;
mod layer;
mod layer_sweep;
mod live;
mod lockstep;
mod logprobs;
mod memory;
mod observer;
mod pass;
mod pipeline;
mod predictions;
mod probes;
mod pyramid;
mod questions;
pub mod readings;
mod remedies;
mod repeated;
mod rerun;
mod resume;
mod separators;
mod subject;
mod sweep;
mod tap;
mod tensor_stats;
mod texts_at_hand;
mod together;
mod watch;
mod weights;
mod what_if;
mod work;
mod writing;

pub use attnscope_compute::kernels::softmax_row::{SoftmaxRow, softmax_in_place, spectral_norm};
pub use boundaries::{Covering, boundaries, covering};
pub use budget::Budget;
pub use captured::{
    ArrayNames, Declared, DeclaredMask, Randomness, Recorded, Trace, Unaudited, about_dump,
    captured_head, is_captured, is_dump, is_probe, is_shown_otherwise, judge_captured, judge_trace,
    open as open_trace, read_trace, read_unaudited, real_tokens, renumbered,
};
pub use crossings::{Crossing, crossings, probed};
pub use edited::{Earlier, Shared};
pub use encoded::{encoded_prompt, n_encoded};
pub use first_nonfinite::NonFinite;
pub use head::{FULL_CELLS, HeadDetail, HeadMap, HeadQuery, PartDetail, head_detail, part_detail};
pub use histogram::Histogram;
pub use job::{Job, Options, Outcome};
pub use judge::{Judgement, Judging, Step, judge, judge_layers, probe, unasked};
pub use kept::Kept;
pub use layer_sweep::{LayerSweep, SweepPlace, sweep_layer};
pub use live::{
    LiveRun, Told, judge_live, live_changes, live_request, probe_live, record_live,
    record_unaudited, unprobed,
};
pub use logprobs::{Distributions, TokenLogProb, needs_next_tokens, token_logprobs};
pub use memory::MemoryNeed;
pub use observer::{Layers, Observer, Progress, Silent};
pub use pass::{Pass, targets};
pub use pipeline::{KEEP_BYTES, run, run_all, run_changed, run_edited};
pub use predictions::{LabelAt, Predictions, TopToken};
pub use probes::{probe_future, probe_order, probe_padding};
pub use pyramid::Pyramid;
pub use questions::{Bearing, Question, questions};
pub use readings::{Reading, losses_of_all_readings, probe_readings, readings_page};
pub use repeated::{Stripes, stripes};
pub use rerun::head_with;
pub use resume::Resume;
pub use separators::separates;
pub use subject::{Ability, Sizes, Subject};
pub use sweep::{Averaged, MOST_SCALES, Sweep, SweepPoint, round_scales, sweep_scales};
pub use tap::Tap;
pub use tensor_stats::{TensorStats, tensor_stats};
pub use what_if::{
    Change, KEYS as WHAT_IF_KEYS, WhatIf, alignment_with_what_ifs, changed, with_what_ifs,
};
pub use work::{work_of, work_spared};
pub use writing::{
    Past, Rules, Taps, Text, Writer, WriterMemory, Written, can_write, end_tokens, generate,
    input_of,
};
