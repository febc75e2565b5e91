//! The library that draws the charts of acidtest's pages, as text to be put into them: a page loads nothing from
//! elsewhere. `vendor/uplot/README.md` says where it is from.

/// uPlot, which defines `uPlot`.
pub const SCRIPT: &str = include_str!("../vendor/uplot/uPlot.iife.min.js");
pub const STYLE: &str = include_str!("../vendor/uplot/uPlot.min.css");
/// Its licence, to be shown on each page.
pub const LICENSE: &str = include_str!("../vendor/uplot/LICENSE");

/// What charts share: figures as readers see them, axes, and marks, as `figures`.
pub const FIGURES: &str = include_str!("figures.js");
