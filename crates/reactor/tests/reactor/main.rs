//! What both drivers promise, each test run once on epoll and once on io_uring.

mod lifecycle;
mod rig;
mod traffic;
mod waking;
