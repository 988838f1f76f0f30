//! What a model is, as data: blocks, mixers, embeddings, heads, and the tensors that each of them reads. Nothing here runs.
//!
//! Families fill these values from a configuration; the forward pass runs them. Neither knows the other.

mod ablation;
mod added_convolution;
mod added_places;
mod block;
mod bottleneck;
mod chain;
mod conformer;
mod decoder_start;
mod difference;
mod embed;
mod factors;
mod feed_forward;
mod global_maps;
mod grid_maps;
mod grids;
mod head;
mod head_experts;
mod hyper;
mod indexer;
mod labels;
mod merge;
pub mod mixers;
mod model;
mod needed;
mod norm_source;
mod patches;
pub mod place;
mod planes;
mod pools;
mod projected;
mod projection;
mod quirks;
pub mod recurrent;
pub mod roles;
mod rounded;
mod rows;
mod self_attention;
mod side_stream;
mod source;
mod stack;
mod stem;
mod timing;
mod walk;

pub use ablation::Ablation;
pub use added_convolution::AddedConvolution;
pub use added_places::{AddedPlaces, PlaceRows, SineScale};
pub use block::{BlockSpec, CrossSpec, Mixer};
pub use bottleneck::{Bottleneck, NormedMap};
pub use chain::{Chain, ChainStep, MomentConvolution};
pub use conformer::{ChannelNorm, ConformerSpec, ConvolutionModule, LabelGuess};
pub use decoder_start::{DecoderInput, DecoderStart, Forced};
pub use difference::DifferenceSource;
pub use embed::{
    ConstantRow, DroppedToken, EmbedSpec, JoinedRows, MadePart, MadeRow, PositionTable, Sines,
};
pub use factors::{FactorRule, FactorsHeld, OutputFactors};
pub use feed_forward::{
    ApartNorms, ChoiceBias, ExpertGroups, ExpertNorms, ExpertsByToken, ExpertsSpec, FeedForward,
    GateRule, LearnedActivation, MlpSpec, RouterRule, RouterScores,
};
pub use global_maps::GlobalMaps;
pub use grid_maps::{
    ConvolvedInput, ConvolvedInputs, HiddenConvolution, KeyGrid, KeyReduction, KeysOfBoth,
    QueryPooling,
};
pub use head::{HeadSpec, TransformSpec};
pub use head_experts::HeadExperts;
pub use hyper::{
    ConnectionSpec, FoldSpec, GatedConnection, HyperSpec, StreamGates, StreamWeights,
    WeightedConnection,
};
pub use indexer::{IndexMaps, IndexSource, IndexerSpec, PoolMaps};
pub use labels::{LabelKind, Labels, Pooled};
pub use merge::{Joining, MergeSpec, SquareMap, StagePlaces};
pub use mixers::TokenMixer;
pub use model::{Model, ModelSpec};
pub use needed::NeededTensor;
pub use norm_source::{GainGrowth, NormKind, NormSource};
pub use patches::{
    GridPositions, LearnedTokens, LinePositions, MomentRows, PatchLayout, PatchMap, PatchSpec,
    Resampling, TilePositions,
};
pub use place::{Grid, Place, Places, Stack};
pub use planes::PlaneConvolution;
pub use pools::{PoolPicks, PoolSource, PooledKeys};
pub use projected::{
    BiasGate, DistanceRows, HeadGrowth, HeadScales, LatentSharing, LatentSpec, MadeValues,
    PairValues, ProfileGate, QueryBiases, RelativeSource, ShareGate, StepSource, ValueBiasSource,
};
pub use projection::{FirstRows, GateFunction, Narrowed, ProjectionSpec};
pub use quirks::{LastMixer, NarrowBranch, PoolingSpec, SumRule, SumWeights, TokenBranch};
pub use rounded::{ScaleOver, WeightFormat};
pub use rows::{
    BlockRow, Join, KvSharing, PredictedStreams, RowSpec, Shortcut, StreamEnds, StreamMaps,
    StreamsSpec,
};
pub use self_attention::{Exceptions, SelfSpec, Variant};
pub use side_stream::{KeptStart, SideEmbed, SideStream};
pub use source::{
    HeadAxes, InputPart, LastInputs, LinearSource, LowRank, MapGroups, MapScale, Part, Slab,
    TableSource,
};
pub use stack::{Layers, StackSpec};
pub use stem::{
    AroundKernel, AroundRows, Lengthened, SoundStem, StemChunks, StemConvolution, StemEnd,
    StemNorm, StemPlaces, StemSines,
};
pub use timing::Timing;
