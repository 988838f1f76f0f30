//! The processor's tiles, through their instructions.

use std::arch::asm;
use std::arch::x86_64::{__cpuid, __cpuid_count};
use std::marker::PhantomData;

use super::pack::{ActivationStep, SIDE, Sums, WeightStep};

/// Bytes in a row of a tile: one cache line.
const ROW_BYTES: usize = 64;
/// A packed tile's rows are `ROW_BYTES` apart, and consecutive tiles sixteen times that.
const _: () = assert!(size_of::<WeightStep>() == 2 * SIDE * ROW_BYTES);
const _: () = assert!(size_of::<ActivationStep>() == 6 * SIDE * ROW_BYTES);
const _: () = assert!(size_of::<Sums>() == 4 * SIDE * ROW_BYTES);

/// Proof that the processor has bf16 tiles and that the system lets this process use them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Granted(());

impl Granted {
    /// Checks the processor, then the system.
    pub fn ask() -> Option<Self> {
        (has_tiles() && are_saved() && are_permitted()).then_some(Self(()))
    }
}

/// Whether the processor has AMX-TILE and AMX-BF16, with tiles of the size used here.
fn has_tiles() -> bool {
    const TILE: u32 = 1 << 24;
    const BF16: u32 = 1 << 22;
    if __cpuid(0).eax < 0x1d || __cpuid_count(7, 0).edx & (TILE | BF16) != TILE | BF16 {
        return false;
    }
    let palette = __cpuid_count(0x1d, 1);
    let (n_tiles, row_bytes, n_rows) = (
        palette.ebx >> 16,
        palette.ebx & 0xffff,
        palette.ecx & 0xffff,
    );
    n_tiles >= 8 && row_bytes as usize >= ROW_BYTES && n_rows as usize >= SIDE
}

/// Whether the system saves tiles when it switches threads.
fn are_saved() -> bool {
    const OSXSAVE: u32 = 1 << 27;
    const TILE_CONFIG_AND_DATA: u32 = 0b11 << 17;
    if __cpuid(1).ecx & OSXSAVE == 0 {
        return false;
    }
    let saved: u32;
    // SAFETY: OSXSAVE was checked above, so this instruction exists; it reads a register and writes two.
    #[expect(unsafe_code)]
    unsafe {
        asm!("xgetbv", in("ecx") 0, out("eax") saved, out("edx") _, options(nomem, nostack, preserves_flags));
    }
    saved & TILE_CONFIG_AND_DATA == TILE_CONFIG_AND_DATA
}

/// Whether the system lets this process use tiles: Linux requires a request, once for all threads.
fn are_permitted() -> bool {
    const ARCH_PRCTL: isize = 158;
    const REQUEST_STATE: usize = 0x1023;
    const TILE_DATA: usize = 18;
    let answer: isize;
    // SAFETY: the call changes which registers this process may use, not its memory; the kernel overwrites rax, rcx and r11.
    #[expect(unsafe_code)]
    unsafe {
        asm!("syscall", inlateout("rax") ARCH_PRCTL => answer, in("rdi") REQUEST_STATE, in("rsi") TILE_DATA,
            lateout("rcx") _, lateout("r11") _, options(nostack));
    }
    answer == 0
}

/// The operand of `ldtilecfg`: palette 1; for each of eight tiles, the bytes per row from byte 16 on, and the number of rows from
/// byte 48 on. (Intel, Software Developer's Manual 1, 18.3)
static CONFIG: [u8; 64] = {
    let mut config = [0; 64];
    config[0] = 1;
    let mut tile_idx = 0;
    while tile_idx < 8 {
        config[16 + 2 * tile_idx] = ROW_BYTES as u8;
        config[48 + tile_idx] = SIDE as u8;
        tile_idx += 1;
    }
    config
};

/// Tiles configured on this thread, and released on drop: switching is faster for a thread without tiles.
pub struct Configured {
    /// Prevents sending: the configuration belongs to the thread.
    stays: PhantomData<*mut ()>,
}

impl Configured {
    pub fn new(_: Granted) -> Self {
        // SAFETY: `Granted` proves that the processor has tiles and the process may use them; the configuration has the required
        // form and 64 bytes, and its tiles are no larger than the palette's limit, which was checked.
        #[expect(unsafe_code)]
        unsafe {
            asm!("ldtilecfg [{}]", in(reg) CONFIG.as_ptr(), options(nostack, readonly, preserves_flags),
                out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
                out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _);
        }
        Self { stays: PhantomData }
    }

    /// Adds to four tiles of sums, over all steps of both slices.
    pub fn multiply(
        &self,
        weights: &[WeightStep],
        activations: &[ActivationStep],
        sums: &mut Sums,
    ) {
        let n_steps = weights.len().min(activations.len());
        if n_steps == 0 {
            return;
        }
        // The four sums alternate, so that none waits for its last addition; the parts are added smallest first, as in
        // `portable`.
        // SAFETY: tiles are configured on this thread as long as `self` lives, each with 16 rows × 64 bytes and a stride of 64,
        // so a load reads 1024 bytes. Each of the `n_steps` iterations advances the weights' pointer by the 2048 bytes of one
        // step and the activations' by 6144, as asserted above for both types; the sums are 4096 bytes, exclusively borrowed.
        #[expect(unsafe_code)]
        unsafe {
            asm!(
                "tileloadd tmm0, [{sums} + {stride}]",
                "tileloadd tmm1, [{sums} + {stride} + 1024]",
                "tileloadd tmm2, [{sums} + {stride} + 2048]",
                "tileloadd tmm3, [{sums} + {stride} + 3072]",
                "2:",
                "tileloadd tmm4, [{weights} + {stride}]",
                "tileloadd tmm5, [{weights} + {stride} + 1024]",
                "tileloadd tmm6, [{activations} + {stride}]",
                "tileloadd tmm7, [{activations} + {stride} + 1024]",
                "tdpbf16ps tmm0, tmm4, tmm6",
                "tdpbf16ps tmm1, tmm4, tmm7",
                "tdpbf16ps tmm2, tmm5, tmm6",
                "tdpbf16ps tmm3, tmm5, tmm7",
                "tileloadd tmm6, [{activations} + {stride} + 2048]",
                "tileloadd tmm7, [{activations} + {stride} + 3072]",
                "tdpbf16ps tmm0, tmm4, tmm6",
                "tdpbf16ps tmm1, tmm4, tmm7",
                "tdpbf16ps tmm2, tmm5, tmm6",
                "tdpbf16ps tmm3, tmm5, tmm7",
                "tileloadd tmm6, [{activations} + {stride} + 4096]",
                "tileloadd tmm7, [{activations} + {stride} + 5120]",
                "tdpbf16ps tmm0, tmm4, tmm6",
                "tdpbf16ps tmm1, tmm4, tmm7",
                "tdpbf16ps tmm2, tmm5, tmm6",
                "tdpbf16ps tmm3, tmm5, tmm7",
                "add {weights}, 2048",
                "add {activations}, 6144",
                "dec {n_steps}",
                "jnz 2b",
                "tilestored [{sums} + {stride}], tmm0",
                "tilestored [{sums} + {stride} + 1024], tmm1",
                "tilestored [{sums} + {stride} + 2048], tmm2",
                "tilestored [{sums} + {stride} + 3072], tmm3",
                sums = in(reg) &raw mut *sums,
                stride = in(reg) ROW_BYTES,
                weights = inout(reg) weights.as_ptr() => _,
                activations = inout(reg) activations.as_ptr() => _,
                n_steps = inout(reg) n_steps => _,
                out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
                out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
                options(nostack),
            );
        }
    }
}

impl Drop for Configured {
    fn drop(&mut self) {
        // SAFETY: tiles were configured on this thread, which `self` cannot leave; nothing uses them afterwards.
        #[expect(unsafe_code)]
        unsafe {
            asm!("tilerelease", options(nomem, nostack, preserves_flags),
                out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
                out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _);
        }
    }
}
