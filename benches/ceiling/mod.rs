//! The most that the cores can multiply and add: a loop of fused multiply-adds that never leaves the registers.

use std::sync::Barrier;
use std::time::Instant;

/// Independent chains: enough to hide the latency of one instruction behind the others on every core so far.
const N_CHAINS: usize = 12;
const N_STEPS: usize = 4_000_000;
/// The best of several: a ceiling is what nothing else disturbed.
const N_TRIES: usize = 7;

/// One run of the loop on this core, with the flops of all of it.
type Loop = fn() -> f64;

/// GF/s of so many threads at once; `None` where no loop is written for the processor.
pub fn gflops(n_threads: usize) -> Option<f64> {
    let run = widest()?;
    let mut best = 0.0f64;
    for _ in 0..N_TRIES {
        let barrier = Barrier::new(n_threads);
        let timed = || {
            barrier.wait();
            let started = Instant::now();
            let flops = run();
            flops / started.elapsed().as_secs_f64() / 1e9
        };
        let sum: f64 = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..n_threads).map(|_| scope.spawn(timed)).collect();
            let joined = threads.into_iter().map(|thread| thread.join());
            joined.map(|gflops| gflops.expect("the loop")).sum()
        });
        best = best.max(sum);
    }
    Some(best)
}

#[cfg(target_arch = "x86_64")]
fn widest() -> Option<Loop> {
    if is_x86_feature_detected!("avx512f") {
        return Some(|| {
            #[expect(
                unsafe_code,
                reason = "needs instructions that not every processor has"
            )]
            // SAFETY: the processor has them, as was just asked.
            unsafe {
                x86::avx512()
            }
        });
    }
    if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
        return Some(|| {
            #[expect(
                unsafe_code,
                reason = "needs instructions that not every processor has"
            )]
            // SAFETY: the processor has them, as was just asked.
            unsafe {
                x86::avx2()
            }
        });
    }
    None
}

#[cfg(not(target_arch = "x86_64"))]
fn widest() -> Option<Loop> {
    None
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::{_mm256_fmadd_ps, _mm256_set1_ps, _mm512_fmadd_ps, _mm512_set1_ps};
    use std::hint::black_box;

    use super::{N_CHAINS, N_STEPS};

    /// The loop on vectors of so many values. Every chain is a variable: an array of them would be kept in memory where code is made small.
    macro_rules! loop_of {
        ($n_values:literal, $all:ident, $multiply_add:ident, $($chain:ident)*) => {{
            // Unknown to the compiler, and chosen so that nothing overflows or becomes subnormal.
            let (by, and) = ($all(black_box(0.5)), $all(black_box(1.0)));
            $(let mut $chain = and;)*
            for _ in 0..N_STEPS {
                $($chain = $multiply_add($chain, by, and);)*
            }
            let n_chains = black_box([$($chain),*]).len();
            assert_eq!(n_chains, N_CHAINS);
            (2 * $n_values * N_CHAINS * N_STEPS) as f64
        }};
    }

    #[target_feature(enable = "avx512f")]
    pub fn avx512() -> f64 {
        loop_of!(16, _mm512_set1_ps, _mm512_fmadd_ps, a b c d e f g h i j k l)
    }

    #[target_feature(enable = "avx2,fma")]
    pub fn avx2() -> f64 {
        loop_of!(8, _mm256_set1_ps, _mm256_fmadd_ps, a b c d e f g h i j k l)
    }
}
