//! The devices that the two sides of a comparison run on: one for both, or one each.

use attnscope_compute::ops::Ops;
use attnscope_forward::LayerWeights;
use attnscope_run::Pass;

/// Devices of A and of B.
pub(super) trait Engines {
    type A: Ops;
    type B: Ops;

    fn a(&self) -> &Self::A;
    fn b(&self) -> &Self::B;

    /// Returns A's weights for B to run on; `None` if they are on another device.
    fn weights_for_b<'w>(
        &self,
        of_a: LayerWeights<'w, Self::A>,
    ) -> Option<LayerWeights<'w, Self::B>>;

    /// Returns A's run for B to read from; `None` if its buffers are on another device.
    fn pass_for_b<'p, 'r>(&self, of_a: &'p Pass<'r, Self::A>) -> Option<&'p Pass<'r, Self::B>>;
}

/// Both sides run on one device.
pub(super) struct OneDevice<'a, O>(pub &'a O);

impl<O: Ops> Engines for OneDevice<'_, O> {
    type A = O;
    type B = O;

    fn a(&self) -> &O {
        self.0
    }

    fn b(&self) -> &O {
        self.0
    }

    fn weights_for_b<'w>(&self, of_a: LayerWeights<'w, O>) -> Option<LayerWeights<'w, O>> {
        Some(of_a)
    }

    fn pass_for_b<'p, 'r>(&self, of_a: &'p Pass<'r, O>) -> Option<&'p Pass<'r, O>> {
        Some(of_a)
    }
}

/// Each side runs on a device of its own.
pub(super) struct TwoDevices<'a, A, B>(pub &'a A, pub &'a B);

impl<A: Ops, B: Ops> Engines for TwoDevices<'_, A, B> {
    type A = A;
    type B = B;

    fn a(&self) -> &A {
        self.0
    }

    fn b(&self) -> &B {
        self.1
    }

    fn weights_for_b<'w>(&self, _: LayerWeights<'w, A>) -> Option<LayerWeights<'w, B>> {
        None
    }

    fn pass_for_b<'p, 'r>(&self, _: &'p Pass<'r, A>) -> Option<&'p Pass<'r, B>> {
        None
    }
}
