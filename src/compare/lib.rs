//! Compares two models: knobs, weights, and runs in lockstep, hook by hook, down to the first difference.

mod alone;
mod by_output;
mod causes;
mod comparison;
mod engines;
mod exchange;
mod explained;
mod floors;
mod gap;
mod head_map;
mod head_order;
mod inferred_knob;
mod knob;
mod knobs;
mod largest;
mod layer_tokens;
mod lockstep;
pub mod logprobs;
mod map;
mod matrices;
mod model_and_recording;
mod noise;
mod position_knobs;
mod predictions;
mod prompts;
mod recorded;
mod recorded_alone;
mod recorded_cells;
mod recording;
mod recordings;
mod relation;
mod role_list;
mod roles;
mod rounding;
mod row_knobs;
mod rows;
mod serving_knobs;
mod side;
mod spec_knobs;
mod stored;
mod suspects;
mod tables;
mod tensor_difference;
pub mod verify;
mod weight_pair;
mod weights;

pub use causes::Cause;
pub use comparison::{
    CompareOptions, Comparison, HeadDifference, HookDifference, IsolatedLayer, PromptDifference,
    Side,
};
pub use floors::{F32_FLOOR, Floors, HALF_FLOOR, Precision};
pub use head_map::HeadMap;
pub use knob::{KnobKind, KnobValue};
pub use knobs::{KnobDifference, knob_differences, preventing};
pub use lockstep::ROW_BYTES;
pub use map::LayerMap;
pub use model_and_recording::ModelAndRecording;
pub use predictions::PredictionDifference;
pub use prompts::{beyond_one_context, tokenizers_differ};
pub use recording::{RecordedTokens, Recording, is_recording};
pub use relation::Relation;
pub use tables::TableHead;
pub use tensor_difference::{MOST_ROWS, TensorDifference};
pub use weights::{WeightDifferences, compare_names, compare_weights};
