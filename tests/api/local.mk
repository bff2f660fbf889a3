# SPDX-License-Identifier: BSD-3-Clause

api_tests += \
    %reldir%/alone \
    %reldir%/arguments \
    %reldir%/bootstrap \
    %reldir%/connect_api \
    %reldir%/environment \
    %reldir%/finalize \
    %reldir%/handles \
    %reldir%/log \
    %reldir%/state \
    %reldir%/stats_output
early_api_tests += \
    %reldir%/env

api_shared = %reldir%/api.c %reldir%/api.h
%C%_alone_SOURCES = %reldir%/alone.c $(api_shared)
%C%_alone_LDADD = $(API_LIBS)
%C%_arguments_SOURCES = %reldir%/arguments.c $(api_shared)
%C%_arguments_LDADD = $(API_LIBS)
%C%_bootstrap_SOURCES = %reldir%/bootstrap.c $(api_shared)
%C%_bootstrap_LDADD = $(API_LIBS)
%C%_connect_api_SOURCES = %reldir%/connect_api.c $(api_shared)
%C%_connect_api_LDADD = $(API_LIBS)
%C%_env_SOURCES = %reldir%/env.c $(api_shared)
%C%_env_LDADD = $(API_LIBS)
%C%_environment_SOURCES = %reldir%/environment.c $(api_shared)
%C%_environment_LDADD = $(API_LIBS)
%C%_finalize_SOURCES = %reldir%/finalize.c $(api_shared)
%C%_finalize_LDADD = $(API_LIBS)
%C%_handles_SOURCES = %reldir%/handles.c $(api_shared)
%C%_handles_LDADD = $(API_LIBS)
%C%_log_SOURCES = %reldir%/log.c $(api_shared)
%C%_log_LDADD = $(API_LIBS)
%C%_state_SOURCES = %reldir%/state.c $(api_shared)
%C%_state_LDADD = $(API_LIBS)
%C%_stats_output_SOURCES = %reldir%/stats_output.c $(api_shared)
%C%_stats_output_LDADD = $(API_LIBS)

# See tests/local.mk.
asan_quick += %reldir%/alone %reldir%/arguments %reldir%/bootstrap %reldir%/connect_api %reldir%/env %reldir%/environment \
    %reldir%/finalize %reldir%/log %reldir%/state %reldir%/stats_output
