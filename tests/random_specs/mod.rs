//! Random attention specs, for tests of everything that computes attention.

use attnscope::attention::{
    Alibi, AttentionSpec, Bias, Buckets, KeyDivisor, Mask, NoVisible, OfKeys, Scale, SoftmaxAxis,
    Window,
};
use proptest::prelude::*;

/// Buckets of a relative bias: its values are as many, times the heads.
pub const N_BUCKETS: usize = 16;

fn windows() -> impl Strategy<Value = Option<Window>> {
    prop_oneof![
        2 => Just(None),
        1 => (1usize..80).prop_map(|width| Some(Window::Back(width))),
        1 => (0usize..80).prop_map(|reach| Some(Window::Around(reach))),
    ]
}

fn biases() -> impl Strategy<Value = Bias> {
    let slopes = prop::collection::vec(0.001f32..0.5, 9);
    let alibi = (slopes, any::<bool>(), any::<bool>());
    let alibi = alibi.prop_map(|(slopes, is_scaled, rounds_to_bf16)| {
        Bias::Alibi(Alibi {
            slopes,
            is_scaled,
            rounds_to_bf16,
        })
    });
    let buckets = any::<bool>().prop_map(|is_bidirectional| {
        Bias::Buckets(Buckets {
            n_buckets: N_BUCKETS,
            max_distance: 40,
            is_bidirectional,
        })
    });
    prop_oneof![2 => Just(Bias::None), 2 => alibi, 1 => buckets]
}

fn divisors() -> impl Strategy<Value = Scale> {
    let divisor = prop_oneof![
        Just(KeyDivisor::SumOfNorms),
        Just(KeyDivisor::MeanNorm),
        Just(KeyDivisor::RootOfSquares),
        (0.5f32..5.0).prop_map(KeyDivisor::PNorm),
        Just(KeyDivisor::NSqrtD),
    ];
    (divisor, 0.5f32..20.0).prop_map(|(divisor, factor)| Scale::OfKeys(OfKeys { divisor, factor }))
}

/// One with every knob but a cross-attention's.
pub fn specs() -> impl Strategy<Value = AttentionSpec> {
    let shapes = (1usize..=3, 1usize..=3, 1usize..=40, 1usize..=24);
    let scale = prop_oneof![
        3 => Just(Scale::InvSqrtD),
        1 => Just(Scale::InvD),
        1 => Just(Scale::One),
        1 => (0.01f32..2.0).prop_map(Scale::Factor),
        1 => divisors(),
    ];
    let axis = prop_oneof![2 => Just(SoftmaxAxis::Keys), 1 => Just(SoftmaxAxis::Queries)];
    let no_visible = prop_oneof![
        Just(NoVisible::Zero),
        Just(NoVisible::Uniform),
        Just(NoVisible::Nan)
    ];
    let softcap = prop::option::of(0.5f32..60.0);
    let knobs = (
        scale,
        axis,
        any::<bool>(),
        windows(),
        no_visible,
        softcap,
        biases(),
    );
    (shapes, knobs).prop_map(|((n_kv_heads, per_kv, d_head, d_value), knobs)| {
        let (scale, softmax_axis, causal, window, no_visible, softcap, bias) = knobs;
        AttentionSpec {
            d_value,
            scale,
            softmax_axis,
            mask: Mask { causal, window },
            no_visible,
            softcap,
            bias,
            ..AttentionSpec::plain(n_kv_heads * per_kv, n_kv_heads, d_head, causal)
        }
    })
}
