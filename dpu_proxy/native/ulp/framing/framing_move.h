/* The states of these protocols as records, for another process of the proxy; framing_state.h has the structs. */
#ifndef XTS_ULP_FRAMING_MOVE_H
#define XTS_ULP_FRAMING_MOVE_H

#include "framing_state.h"
#include "wire/record.h"

extern const struct xts_record length_field_record, stream_parser_record, bpf_parser_record, lines_record;

/* What bounds cannot say: 0 or -EBADMSG. Of what they let pass memory is safe, and each read or write ends. */
int ulp_framing_check(const void *made);
int length_field_check(const void *made);
int stream_parser_check(const void *made);
int lines_check(const void *made);

#endif
