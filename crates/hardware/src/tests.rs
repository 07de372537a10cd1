//! Tests on imitations of sysfs.

mod drives;
mod generic;
mod health;
mod imitation;
mod lights;
mod resolving;
