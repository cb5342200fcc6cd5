/*
 * A socket's record in the label of a descriptor, which is passed to another program in place of it: record_label.c.
 */
#ifndef XTS_RECORD_LABEL_H
#define XTS_RECORD_LABEL_H

struct socket_record;

int record_label(int carrier, const struct socket_record *b); /* 0 or -errno */
/* Reads it into *b, which has nothing that is to be freed. 1; 0: there is none; -EPROTO; -EPROTONOSUPPORT: another
 * version of the library wrote it. */
int record_of_label(int fd, struct socket_record *b);

#endif
