//! Tests on imitations of sysfs.

mod drives;
mod health;
mod imitation;
mod lights;
mod resolving;
