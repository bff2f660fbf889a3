# SPDX-License-Identifier: BSD-3-Clause

libtutti_all_la_SOURCES += \
    %reldir%/boot.c \
    %reldir%/boot.h \
    %reldir%/boot_inside.h \
    %reldir%/connect.c \
    %reldir%/file.c \
    %reldir%/fork.c \
    %reldir%/gate.c \
    %reldir%/gate.h \
    %reldir%/gate_host.h \
    %reldir%/gate_judge.c \
    %reldir%/gate_reach.c \
    %reldir%/gate_wire.h \
    %reldir%/id.c \
    %reldir%/id_server.c \
    %reldir%/id_wire.h \
    %reldir%/machine.c \
    %reldir%/machine.h \
    %reldir%/meet.c \
    %reldir%/meet.h \
    %reldir%/meet_id.c \
    %reldir%/meet_job.c \
    %reldir%/meet_local.c \
    %reldir%/meet_self.c \
    %reldir%/meet_store.c \
    %reldir%/meet_tcp.c \
    %reldir%/module.c \
    %reldir%/module.h \
    %reldir%/module_ucx.c \
    %reldir%/net.c \
    %reldir%/net.h \
    %reldir%/net_tcp.c \
    %reldir%/pass.c \
    %reldir%/pass.h \
    %reldir%/probe.c \
    %reldir%/secret.c \
    %reldir%/secret.h \
    %reldir%/share.c \
    %reldir%/side.c \
    %reldir%/side_frame.c \
    %reldir%/side_frame.h \
    %reldir%/side_send.c \
    %reldir%/star.c \
    %reldir%/star.h \
    %reldir%/starting.c \
    %reldir%/starting.h
