/* device.h - what tells one block device from another that was attached in its place. */
#ifndef SR_STORE_DEVICE_H
#define SR_STORE_DEVICE_H

#define SR_DEVICE_IDENTITY_BYTES 256

/* What the kernel knows of the device that stays the same when it is attached again: world-wide name, serial number,
 * partition and its UUID, name of a device-mapper or loop backing, size.  "" for a regular file, or if nothing can be told;
 * cut at a length that fits. */
void sr_device_identity(int fd, char identity[SR_DEVICE_IDENTITY_BYTES]);

#endif
