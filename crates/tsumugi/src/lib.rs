//! Part of Tsumugi; see ARCHITECTURE.md.
