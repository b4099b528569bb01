//! The promises of both drivers; each test runs once on epoll and once on io_uring.

mod lifecycle;
mod rig;
mod traffic;
mod waking;
