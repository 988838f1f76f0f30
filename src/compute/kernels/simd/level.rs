//! The instruction level in use: the best that the processor supports, or a requested one.

use std::sync::OnceLock;

use super::lanes::{Lanes, Portable};

/// The environment variable that forces a level.
pub const VARIABLE: &str = "ATTNSCOPE_SIMD";

/// A set of vector instructions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Arrays of four, which compilers turn into SSE2 or NEON.
    Portable,
    /// AVX2 with fused multiply-add.
    Avx2,
    /// AVX-512 F, BW, CD, DQ and VL.
    Avx512,
}

/// Work that is written once for every level.
pub(in crate::kernels) trait Kernel {
    type Output;
    fn run<L: Lanes>(self, lanes: L) -> Self::Output;
}

impl Level {
    pub const ALL: [Self; 3] = [Self::Portable, Self::Avx2, Self::Avx512];

    pub fn name(self) -> &'static str {
        match self {
            Self::Portable => "portable",
            Self::Avx2 => "avx2",
            Self::Avx512 => "avx512",
        }
    }

    /// Whether this processor supports it.
    pub fn is_available(self) -> bool {
        match self {
            Self::Portable => true,
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => pulp::x86::V3::try_new().is_some(),
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => pulp::x86::V4::try_new().is_some(),
            #[cfg(not(target_arch = "x86_64"))]
            Self::Avx2 | Self::Avx512 => false,
        }
    }

    /// The best level that this processor supports.
    pub fn best() -> Self {
        let available = Self::ALL.into_iter().filter(|level| level.is_available());
        available.max().unwrap_or(Self::Portable)
    }

    /// The level in use: the one named by `ATTNSCOPE_SIMD` if this processor supports it, otherwise the best.
    pub fn current() -> Self {
        static CURRENT: OnceLock<Level> = OnceLock::new();
        *CURRENT.get_or_init(|| Self::asked_for().ok().flatten().unwrap_or_else(Self::best))
    }

    /// The level named by `ATTNSCOPE_SIMD`, if it is set.
    ///
    /// # Errors
    /// A one-line message, if there is no such level or this processor does not support it.
    pub fn asked_for() -> Result<Option<Self>, String> {
        let Some(name) = std::env::var_os(VARIABLE).filter(|name| !name.is_empty()) else {
            return Ok(None);
        };
        let named = Self::ALL.into_iter().find(|level| name == level.name());
        let Some(level) = named else {
            let known = Self::ALL.map(Self::name).join(", ");
            return Err(format!(
                "{VARIABLE}: expected one of {known}, found {name:?}"
            ));
        };
        if level.is_available() {
            Ok(Some(level))
        } else {
            Err(format!(
                "{VARIABLE}: this processor does not have {}; the best it has is {}",
                level.name(),
                Self::best().name()
            ))
        }
    }

    /// Runs a kernel with this level's instructions, or portably if the processor does not support them.
    pub(in crate::kernels) fn run<K: Kernel>(self, kernel: K) -> K::Output {
        #[cfg(target_arch = "x86_64")]
        match self {
            Self::Portable => {}
            Self::Avx2 => {
                if let Some(simd) = pulp::x86::V3::try_new() {
                    return pulp::Simd::vectorize(simd, OfPulp(kernel));
                }
            }
            Self::Avx512 => {
                if let Some(simd) = pulp::x86::V4::try_new() {
                    return pulp::Simd::vectorize(simd, OfPulp(kernel));
                }
            }
        }
        kernel.run(Portable)
    }
}

/// A kernel in the form that pulp calls.
#[cfg(target_arch = "x86_64")]
struct OfPulp<K>(K);

#[cfg(target_arch = "x86_64")]
impl<K: Kernel> pulp::WithSimd for OfPulp<K> {
    type Output = K::Output;

    #[inline(always)]
    fn with_simd<S: pulp::Simd>(self, simd: S) -> K::Output {
        self.0.run(super::lanes::OfPulp(simd))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_level_is_always_available_and_so_is_the_one_in_use() {
        assert!(Level::Portable.is_available());
        assert!(Level::best().is_available() && Level::current().is_available());
    }
}
