//! Typed resources (skeleton).
