//! The panels: their order, titles and keys, in one list.

/// Declares the panels from one list: the enum, the list, and the properties of each.
macro_rules! panels {
    ($($(#[$about:meta])* $panel:ident $title:literal $key:literal $of:ident,)*) => {
        /// The panels, in the order of their keys.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Panel {
            $($(#[$about])* $panel,)*
        }

        impl Panel {
            pub const ALL: [Self; [$(stringify!($panel)),*].len()] = [$(Self::$panel,)*];

            pub fn title(self) -> &'static str {
                match self {
                    $(Self::$panel => $title,)*
                }
            }

            /// The key that opens it.
            pub fn key(self) -> char {
                match self {
                    $(Self::$panel => $key,)*
                }
            }

            /// What it shows.
            fn of(self) -> Of {
                match self {
                    $(Self::$panel => Of::$of,)*
                }
            }
        }
    };
}

/// What a panel shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Of {
    /// The selected head, computed in full.
    FullHead,
    /// The selected head, from its layer's report.
    Head,
    /// The run, the model, or the demo.
    All,
}

panels! {
    Overview "Overview" '1' All,
    Head "Head" '2' FullHead,
    Scores "Scores" '3' FullHead,
    Tokens "Tokens" '4' FullHead,
    Model "Model" '5' All,
    Checks "Checks" '6' All,
    Compare "Compare" '7' FullHead,
    /// Only when a training is open.
    History "History" 'H' All,
    Rows "Rows" '8' Head,
    Effect "Effect" '9' Head,
    Sweep "Sweep" 'T' FullHead,
    /// Has a tab once it was opened, or prompts were given on the command line.
    Prompts "Prompts" 'P' Head,
    /// Only in demos that have one.
    Story "Story" 'S' All,
}

impl Panel {
    /// Whether it shows the selected head, computed in full.
    pub fn shows_head(self) -> bool {
        self.of() == Of::FullHead
    }

    /// Whether it is about the selected head.
    pub fn is_of_head(self) -> bool {
        self.of() != Of::All
    }

    /// Whether it can show B minus A.
    pub fn has_differences(self) -> bool {
        !matches!(
            self,
            Self::Effect | Self::Sweep | Self::Story | Self::History
        )
    }

    /// Whether it shows both runs, whichever of them the others show.
    pub fn compares(self) -> bool {
        self == Self::Compare
    }
}
