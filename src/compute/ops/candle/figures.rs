//! Sums of a row that the device computes. A figure is one name in the list below; the device fills it, the host reads it.
//! `fused/kernels.cu` writes them in this order.

/// Makes the struct, and takes it apart and together in the order of its fields.
macro_rules! figures {
    ($($figure:ident),* $(,)?) => {
        /// Number of figures.
        pub(super) const COUNT: usize = [$(stringify!($figure)),*].len();

        /// One value of each figure.
        pub(super) struct Figures<T> {
            $(pub $figure: T,)*
        }

        impl<T> Figures<T> {
            /// Returns the figures in order.
            pub fn into_vec(self) -> Vec<T> {
                vec![$(self.$figure),*]
            }

            /// Makes the figures from their values in order; `None` if there are too few.
            pub fn of(values: impl IntoIterator<Item = T>) -> Option<Self> {
                let mut values = values.into_iter();
                $(let $figure = values.next()?;)*
                Some(Self { $($figure),* })
            }
        }
    };
}

figures! {
    score_max,
    score_min,
    score_mean,
    score_var,
    raw_max,
    raw_min,
    raw_mean,
    raw_var,
    max,
    denominator,
    log_p_sum,
    mass,
    sum_p2,
    sum_p3,
    distance,
    top1,
    top2,
    argmax,
    first_mass,
    diagonal_mass,
    previous_mass,
    duplicate_mass,
    induction_mass,
    later_mass,
    cosine_sum,
    carried,
    carried_logs,
}
